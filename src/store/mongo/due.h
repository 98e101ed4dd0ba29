/* due.h - the verbs of mongo.h that set a deadline, which these note. For the ops table. Private to
 * store/mongo. */
#ifndef MSG_MONGO_DUE_H
#define MSG_MONGO_DUE_H

#include "store/mongo/mongo.h"

int msg_mongo_put_due(msg_session *, const msg_actor *, msg_put *, size_t, msg_err *);
int msg_mongo_claim_due(msg_session *, const msg_actor *, const msg_claim *, msg_list *, msg_err *);
int msg_mongo_claimable_due(msg_session *, const msg_actor *, const msg_claim *, bool *, msg_err *);
int msg_mongo_settle_due(msg_session *, const msg_actor *, const msg_settle *, msg_settle_item *,
                         size_t, msg_err *);
int msg_mongo_apply_due(msg_session *, const msg_actor *, msg_unit *, msg_err *);
int msg_mongo_change_due(msg_session *, const msg_actor *, const msg_oid *, const msg_update *,
                         msg_err *);

#endif
