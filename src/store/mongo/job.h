/* job.h - work for the server that its caller waits for no longer than it may: libmongoc itself
 * knows no deadline of a call. Private to store/mongo. */
#ifndef MSG_MONGO_JOB_H
#define MSG_MONGO_JOB_H

#include "store/mongo/mongo.h"

typedef struct msg_mongo_job {
  struct msg_mongo_job *next; /* in the tend's list, once left behind */
  /* immutable after start */
  msg_mongo_session *s; /* its own */
  msg_settings settings;
  char *node;
  msg_unit unit; /* a deep copy */
  int (*work)(msg_session *, const msg_actor *, msg_unit *, msg_err *);
  msg_thread *thread;
  msg_mutex *mtx;
  msg_cond *ended;
  /* shared: guarded by mtx */
  bool done, left; /* left: nobody waits for it any more */
  int rc;
  bool reached;
  msg_err err;
} msg_mongo_job;

/** Run `work` on a copy of the unit in a thread of its own and wait for it, at most `within_ms`.
 *  What takes longer fails with MSG_UNAVAILABLE, and unit->reached: the thread goes on, and takes
 *  back what it did if it comes to an end after all. */
int msg_mongo_job_run(msg_mongo_session *s, const msg_actor *actor, msg_unit *unit,
                      int (*work)(msg_session *, const msg_actor *, msg_unit *, msg_err *),
                      const char *what, int64_t within_ms, msg_err *err);
/** Join those that have ended. False: one still runs, and uses the store. */
bool msg_mongo_jobs_reap(msg_mongo_store *store);

#endif
