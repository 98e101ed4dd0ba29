/* process.h - who this process is, and whether another one still runs. */
#ifndef MSG_BASE_PROCESS_H
#define MSG_BASE_PROCESS_H

#include <stdbool.h>

#include "base/err.h"

#define MSG_PROCESS_ID_MAX 96

/** Identity of this process: "<boot id>:<pid namespace>:<pid>:<start time>". Static, fixed at first
 *  call, new after fork. Source: /proc/sys/kernel/random/boot_id, /proc/self/ns/pid, getpid(),
 *  /proc/<pid>/stat field 22. Where /proc is missing, boot and namespace are "-" and start is 0;
 *  where it shows another namespace, start is 0 (liveness is then unknown). Thread: any. */
const char *msg_process_self(void);

enum msg_liveness { MSG_ALIVE, MSG_DEAD, MSG_UNKNOWN };

/** Is the process behind an identity running? MSG_UNKNOWN when boot id or pid namespace differ from
 *  ours, the text is malformed, or /proc hides the process (hidepid): then only the lease counts.
 *  A zombie is dead. Thread: any. Blocks: one /proc read. */
enum msg_liveness msg_process_liveness(const char *identity);

/** Host name (1..64 bytes: lower case, every byte outside [a-z0-9-.] becomes '-'), program name
 *  likewise (1..32 bytes, so that an automatic sender id fits MSG_NODE_MAX). Static. */
const char *msg_process_host(void);
const char *msg_process_program(void);
/** getpid(), without asking for unistd everywhere. */
int msg_process_pid(void);
/** Environment variable, or NULL. */
const char *msg_process_env(const char *name);
/** Random bytes from the kernel; good enough to keep ids apart where it gives none. No secrets. */
void msg_process_random(void *out, unsigned n);

#endif
