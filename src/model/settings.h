/* settings.h - a node's settings: one table of names, units, defaults, bounds. */
#ifndef MSG_MODEL_SETTINGS_H
#define MSG_MODEL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/value.h"

/* Values in force. Text fields are owned. */
typedef struct msg_settings {
  char *queue;                     /* NULL: "msg"; see msg_settings_queue */
  char *sender_id;                 /* NULL: automatic */
  bool catch_up;                   /* as set; in force is msg_settings_catch_up */
  bool catch_up_set;               /* false: catch up iff sender_id was given */
  char *journal_mode;              /* NULL: leave it; "wal", "delete", "truncate", "persist" */
  char *indexes;                   /* MongoDB: NULL: "full" (as Java nodes need them), or "lean" */
  char *layout;                    /* MongoDB: NULL: "standard", or "multi", "dual" */
  char *implementation_check;      /* MongoDB: NULL: "warn", or "throw", "ignore" */
  bool use_change_stream;          /* MongoDB; true */
  int64_t busy_timeout_ms;         /* 5000 */
  int64_t default_ttl_ms;          /* 30000: broadcasts without ttl_ms */
  int64_t lease_ms;                /* 30000: msg_claim without lease */
  int64_t await_timeout_ms;        /* 1000: msg_await without timeout */
  int64_t key_window_ms;           /* 300000: how long a de-duplication key is remembered */
  int64_t max_attempts;            /* 20 */
  int64_t window_size;             /* 100: messages one look of an await may take at most */
  int64_t poll_pause_ms;           /* 50: local file polled where no change notice exists */
  int64_t write_timeout_ms;        /* 5000: MongoDB: a write, a COMMIT that sends */
  int64_t participant_timeout_ms;  /* 65000: life of one of another machine after last_seen */
  bool registry_enabled;           /* false: nobody is asked what he listens to */
  char *registry_check_topics;     /* NULL: "ignore", or "warn", "throw" */
  char *registry_check_recipients; /* likewise */
  int64_t registry_update_interval_s; /* 30: seconds */
  bool dm_cleanup_orphans_on_startup; /* MongoDB; true */
} msg_settings;

/* One row of the table. */
typedef struct msg_setting_info {
  const char *name, *unit, *help; /* unit "" if none */
  const char *dflt;               /* default as text */
  bool runtime;                   /* may change while the node is open */
} msg_setting_info;

/** Defaults; text fields NULL. */
void msg_settings_init(msg_settings *s);
/** Free the texts and go back to the defaults. */
void msg_settings_clear(msg_settings *s);
/** Deep copy; on MSG_NOMEM *out holds the defaults. */
int msg_settings_copy(msg_settings *out, const msg_settings *s);
/** The queue in force, borrowed; never NULL. */
const char *msg_settings_queue(const msg_settings *s);
/** Is catch-up in force: as set, else whether a sender_id was given. */
bool msg_settings_catch_up(const msg_settings *s);
/** The table; info is static, NULL past the end. */
size_t msg_settings_count(void);
const msg_setting_info *msg_settings_info(size_t i);
/** What is in force, borrowed; never NULL. */
const char *msg_settings_indexes(const msg_settings *s);
const char *msg_settings_layout(const msg_settings *s);
const char *msg_settings_implementation_check(const msg_settings *s);
const char *msg_settings_registry_check_topics(const msg_settings *s);
const char *msg_settings_registry_check_recipients(const msg_settings *s);
/** Do they go together? Errors: MSG_INVALID: a check of the registry without the registry. */
int msg_settings_check(const msg_settings *s, msg_err *err);
/** Set by name. catch_up takes true, false, 0, 1 or 'auto', use_change_stream all but 'auto';
 *  words any case.
 *  Errors: MSG_INVALID: unknown (names the nearest), wrong type, out of bounds (text gives the
 *          bounds and unit); MSG_MISUSE: `running` and not a runtime setting; MSG_NOMEM.
 *          Nothing set on error. */
int msg_settings_set(msg_settings *s, const char *name, const msg_value *v, bool is_bool,
                     bool running, msg_err *err);
/** Value in force, as a borrowed value (text lives as long as s; MSG_NULL: not set).
 *  Booleans come as 0 or 1. False: unknown name. */
bool msg_settings_get(const msg_settings *s, const char *name, msg_value *out);

#endif
