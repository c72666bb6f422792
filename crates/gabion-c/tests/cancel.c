/* A thread that another one has asked to end makes a first call of each kind: it comes back from all of them, because none is a
 * place where such threads end. */
#include <gabion.h>
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 16, LONG = 9 << 20 };

static gabion_pile *pile;
static char payload[LONG];

static void slots_alloc(size_t size) {
    void *memory;
    CHECK(gabion_slots_alloc(gabion_slots_global(), GABION_NODES, size, 0, &memory) == GABION_OK);
    CHECK(gabion_slots_free(gabion_slots_global(), memory) == GABION_OK);
}

static void rent(size_t bytes) {
    void *memory;
    CHECK(gabion_rent(bytes, 0, &memory) == GABION_OK && gabion_return(memory) == GABION_OK);
}

/* A pile in a file: made, grown, shrunk, written to the disk, saved; then opened again. */
static void file(void) {
    char path[64], copy[64 + sizeof "-copy"];
    gabion_pile *in_file;
    uint64_t pointer, small;
    snprintf(path, sizeof path, "/tmp/gabion-cancel-%d", (int)getpid());
    snprintf(copy, sizeof copy, "%s-copy", path);
    CHECK(gabion_pile_open(path, 0, 0, &in_file) == GABION_OK);
    CHECK(gabion_pile_put(in_file, payload, LONG, 0, &pointer) == GABION_OK);
    CHECK(gabion_pile_put(in_file, payload, 100, 0, &small) == GABION_OK);
    CHECK(gabion_pile_remove(in_file, pointer) == GABION_OK);
    CHECK(gabion_pile_flush(in_file) == GABION_OK);
    CHECK(gabion_pile_save(in_file, copy) == GABION_OK);
    CHECK(gabion_pile_delete(in_file) == GABION_OK);
    CHECK(gabion_pile_open(path, 0, GABION_READ_ONLY, &in_file) == GABION_OK);
    CHECK(gabion_pile_contains(in_file, small) && gabion_pile_delete(in_file) == GABION_OK);
    CHECK(unlink(path) == 0 && unlink(copy) == 0);
    CHECK(gabion_pile_open(path, 0, GABION_MUST_EXIST, &in_file) == GABION_FILE);
}

/* The last view lets go of its pile's file. */
static void view_of_file(void) {
    char path[64];
    const void *bytes;
    gabion_pile *in_file;
    gabion_view *view;
    uint64_t pointer;
    size_t length;
    snprintf(path, sizeof path, "/tmp/gabion-cancel-%d", (int)getpid());
    CHECK(gabion_pile_open(path, 0, 0, &in_file) == GABION_OK && unlink(path) == 0);
    CHECK(gabion_pile_put(in_file, payload, 5000, 0, &pointer) == GABION_OK);
    CHECK(gabion_pile_view(in_file, pointer, &bytes, &length, &view) == GABION_OK);
    CHECK(gabion_pile_delete(in_file) == GABION_OK && gabion_pile_unview(view) == GABION_OK);
}

static void one_call(int kind) {
    gabion_pool_figures figures;
    gabion_slots *slots;
    gabion_pile *another;
    uint64_t pointer;
    void *memory;
    switch (kind) {
    case 0: rent(8 << 20); break;
    case 1: rent(4096); break;
    case 2: slots_alloc(24); break;
    case 3: slots_alloc(5000); break;
    case 4: slots_alloc(24 << 20); break;
    case 5: CHECK(gabion_pool_stats(&figures) == GABION_OK); break;
    case 6: CHECK(gabion_pile_new(0, &another) == GABION_OK && gabion_pile_delete(another) == GABION_OK); break;
    case 7: CHECK(gabion_rent((size_t)1 << 50, 0, &memory) == GABION_LIMIT); break;
    case 8: gabion_pool_trim(true); break;
    case 9: CHECK(gabion_slots_new(&slots) == GABION_OK && gabion_slots_delete(slots) == GABION_OK); break;
    case 10: CHECK(gabion_pool_configure(GABION_POOL_TRIM_PERIOD_MS, 1000) == GABION_OK); break;
    case 11: CHECK(gabion_pool_configure(GABION_POOL_BYTES, GABION_NO_LIMIT) == GABION_OK); break;
    case 12:
        if (pile == NULL) CHECK(gabion_pile_new(0, &pile) == GABION_OK);
        CHECK(gabion_pile_put(pile, payload, LONG, 0, &pointer) == GABION_OK);
        CHECK(gabion_pile_remove(pile, pointer) == GABION_OK);
        break;
    case 13: file(); break;
    case 14: view_of_file(); break;
    default:
        CHECK(gabion_rent_wait(4096, 0, 1, &memory) == GABION_OK && gabion_return(memory) == GABION_OK);
        CHECK(gabion_return(&figures) == GABION_FOREIGN);
    }
}

static void *asked_to_end(void *kind) {
    static int came_back;
    CHECK(pthread_cancel(pthread_self()) == 0);
    one_call(*(int *)kind);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    return &came_back;
}

/* In a child, where nothing is there yet, or what the first thread has used. */
static int comes_back(int kind, int used) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        void *answer;
        int each;
        for (each = 0; used && each < KINDS; each++) one_call(each);
        CHECK(pthread_create(&thread, NULL, asked_to_end, &kind) == 0 && pthread_join(thread, &answer) == 0);
        CHECK(answer != PTHREAD_CANCELED);
        for (each = 0; each < KINDS; each++) one_call(each);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
    int kind, used, failed = 0;
    for (kind = 0; kind < KINDS; kind++) {
        for (used = 0; used < 2; used++) {
            if (!comes_back(kind, used)) {
                fprintf(stderr, "kind %d, %s\n", kind, used ? "used before" : "first");
                failed = 1;
            }
        }
    }
    if (failed) return 1;
    puts("all well");
    return 0;
}
