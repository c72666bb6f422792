/* A process of which malloc has nothing left: what it has of gabion goes back, and a thread's first call is refused, or served, and
 * never ends the process. Each case in a child of its own. */
#include <gabion.h>
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 100000, MIDDLE = 30 };

static gabion_slots *slots, *own;
static gabion_pile *pile;
static uint64_t stored;
static void *large, *lent, *piece, *middle[MIDDLE], *small[SMALL], *here;
static pthread_barrier_t turn;

/* Takes all that the process can get. */
static void exhaust(void) {
    struct rlimit limit;
    size_t pages = 0, size;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1 && fclose(file) == 0);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (size = 1 << 20; size >= 16; size /= 2) {
        while (malloc(size) != NULL) {
        }
    }
}

/* What is to be given back. */
static void prepare(void) {
    int index;
    slots = gabion_slots_global();
    CHECK(slots != NULL && gabion_slots_new(&own) == GABION_OK && gabion_pile_new(0, &pile) == GABION_OK);
    CHECK(gabion_slots_alloc(own, GABION_NODES, 100, 0, &here) == GABION_OK);
    CHECK(gabion_slots_alloc(slots, GABION_DATA, 3000000, 0, &large) == GABION_OK);
    CHECK(gabion_rent(8 << 20, 0, &lent) == GABION_OK && gabion_rent(100000, 0, &piece) == GABION_OK);
    CHECK(gabion_pile_put(pile, "bytes", 5, 0, &stored) == GABION_OK);
    for (index = 0; index < MIDDLE; index++) {
        CHECK(gabion_slots_alloc(slots, GABION_DATA, 900000, 0, &middle[index]) == GABION_OK);
    }
    for (index = 0; index < SMALL; index++) {
        CHECK(gabion_slots_alloc(slots, GABION_NODES, 100, 0, &small[index]) == GABION_OK);
    }
}

static void give_back(int which) {
    int index;
    if (which & 1) CHECK(gabion_slots_free(slots, large) == GABION_OK);
    if (which & 2) CHECK(gabion_return(lent) == GABION_OK && gabion_return(piece) == GABION_OK);
    for (index = 0; which & 4 && index < MIDDLE; index++) CHECK(gabion_slots_free(slots, middle[index]) == GABION_OK);
    for (index = 0; which & 8 && index < SMALL; index++) CHECK(gabion_slots_free(slots, small[index]) == GABION_OK);
    if (which & 16) CHECK(gabion_slots_delete(own) == GABION_OK);
    if (which & 32) CHECK(gabion_pile_delete(pile) == GABION_OK);
}

/* Done, or refused for want of memory. */
static int fair(gabion_status status) {
    return status == GABION_OK || status == GABION_NO_MEMORY;
}

static void first_call(int which) {
    void *out;
    const void *data;
    size_t length;
    gabion_view *view;
    gabion_pile_cursor cursor = {{0}};
    uint64_t pointer = 0;
    switch (which) {
    case 0: CHECK(fair(gabion_rent(100000, 0, &out))); break;
    case 1: CHECK(fair(gabion_return(piece))); break;
    case 2: CHECK(fair(gabion_slots_alloc(slots, GABION_DATA, 3000000, 0, &out))); break;
    case 3: CHECK(fair(gabion_slots_free(slots, large))); break;
    case 4: CHECK(fair(gabion_slots_alloc(slots, GABION_NODES, 24, 0, &out))); break;
    case 5: CHECK(fair(gabion_slots_alloc(slots, GABION_NODES, 5000, 0, &out))); break;
    case 6: CHECK(fair(gabion_slots_free(slots, small[0]))); break;
    case 7: CHECK(fair(gabion_slots_free(slots, middle[0]))); break;
    case 8: CHECK(gabion_slots_alloc(NULL, GABION_NODES, 24, 0, &out) == GABION_BAD_HANDLE); break;
    case 9: CHECK(fair(gabion_rent(8 << 20, 0, &out))); break;
    case 10: CHECK(fair(gabion_pile_view(pile, stored, &data, &length, &view))); break;
    case 11: CHECK(gabion_pile_next(pile, &cursor, &pointer) == GABION_OK && pointer == stored); break;
    }
}

static void *begin(void *which) {
    free(malloc(100));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    exhaust();
    first_call(*(int *)which);
    _exit(0);
}

static void thread_s_first_call(int which) {
    pthread_t thread;
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0 && pthread_create(&thread, NULL, begin, &which) == 0);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
}

/* Whether the child came to its end: what ends it otherwise has said so. */
static int child(void (*act)(int), int which, int exhausted) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        prepare();
        if (exhausted) exhaust();
        act(which);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
    int which, failed = 0;
    for (which = 1; which < 64; which *= 2) {
        if (!child(give_back, which, 1)) {
            fprintf(stderr, "not given back: %d\n", which);
            failed = 1;
        }
    }
    for (which = 0; which <= 11; which++) {
        if (!child(thread_s_first_call, which, 0)) {
            fprintf(stderr, "ended by a thread's first call: %d\n", which);
            failed = 1;
        }
    }
    if (failed) return 1;
    puts("all well");
    return 0;
}
