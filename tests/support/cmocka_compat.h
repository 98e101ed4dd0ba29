/** cmocka 1.1.5 to 2.0 behind one include; the headers below must come before cmocka.h. */
#ifndef MSG_TESTS_CMOCKA_COMPAT_H
#define MSG_TESTS_CMOCKA_COMPAT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
