/* What gabion takes of a thread: little of its stack, and little memory for as long as the thread has little. */
#include <gabion.h>
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 40 << 10, THREADS = 32, MOST_KIB = 200 };

static pthread_barrier_t all_there, measured;

/* Kibibytes that this process has in memory. */
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1 && fclose(file) == 0);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void use(size_t size) {
    void *memory;
    gabion_slots *slots = gabion_slots_global();
    CHECK(slots != NULL && gabion_slots_alloc(slots, GABION_NODES, size, 0, &memory) == GABION_OK);
    memset(memory, 1, size);
    CHECK(gabion_slots_free(slots, memory) == GABION_OK);
    CHECK(gabion_rent(size, 0, &memory) == GABION_OK);
    memset(memory, 1, size);
    CHECK(gabion_return(memory) == GABION_OK);
}

static void *use_once(void *size) {
    use(*(size_t *)size);
    return NULL;
}

static void on_a_small_stack(size_t size) {
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, use_once, &size) == 0 && pthread_join(thread, NULL) == 0);
}

/* In a child, where nothing is there yet; or only what the first thread has made. */
static int child(size_t size, int first) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (!first) use(24);
        on_a_small_stack(size);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void *wait_with_one(void *memory) {
    if (memory != NULL) {
        void *object;
        CHECK(gabion_slots_alloc(gabion_slots_global(), GABION_NODES, 24, 0, &object) == GABION_OK);
        memset(object, 1, 24);
    }
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&measured);
    return NULL;
}

/* What each of many threads has in memory, in KiB. */
static long each_of_many(void *memory) {
    pthread_t threads[THREADS];
    long before, after;
    int index;
    CHECK(pthread_barrier_init(&all_there, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&measured, NULL, THREADS + 1) == 0);
    before = resident();
    for (index = 0; index < THREADS; index++) CHECK(pthread_create(&threads[index], NULL, wait_with_one, memory) == 0);
    pthread_barrier_wait(&all_there);
    after = resident();
    pthread_barrier_wait(&measured);
    for (index = 0; index < THREADS; index++) CHECK(pthread_join(threads[index], NULL) == 0);
    return (after - before) / THREADS;
}

int main(void) {
    static const size_t sizes[] = {24, 5000, 3000000, 9000000};
    size_t index;
    long without, with;
    for (index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        CHECK(child(sizes[index], 1));
        CHECK(child(sizes[index], 0));
    }
    use(24);
    /* A system that uses huge pages unasked may have more in memory than was touched. */
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    without = each_of_many(NULL);
    with = each_of_many(&without);
    if (with - without > MOST_KIB) {
        fprintf(stderr, "a thread with one object has %ld KiB, without it %ld\n", with, without);
        return 1;
    }
    puts("all well");
    return 0;
}
