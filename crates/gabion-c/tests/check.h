/* What the test programs in C and C++ check by. */
#ifndef GABION_TESTS_CHECK_H
#define GABION_TESTS_CHECK_H

#include <gabion.h>
#include <stdio.h>
#include <unistd.h>

/* Ends the process, a child that was forked, too, where something is not so, and tells where. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, gabion_last_error());      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* That a call does what it is to. */
#define OK(call) CHECK((call) == GABION_OK)

#endif
