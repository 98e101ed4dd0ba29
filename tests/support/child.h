/* child.h - run a piece of a test in a forked child. */
#ifndef MSG_TESTS_CHILD_H
#define MSG_TESTS_CHILD_H

/** Fork, run f(arg) in the child, and return what it returned (0..255), or -1 when it crashed. The
 *  child leaves by _exit: no asserts of cmocka in f. */
int child_run(int (*f)(void *arg), void *arg);

#endif
