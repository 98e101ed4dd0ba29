/* deny.h - make a system call fail from now on, in this process and for good: for forked
 * children. */
#ifndef MSG_TESTS_DENY_H
#define MSG_TESTS_DENY_H

#include <stdbool.h>

/** Let system call `number` (SYS_...) fail with `error`. False: this kernel has no seccomp
 *  filters. */
bool deny_syscall(long number, int error);

#endif
