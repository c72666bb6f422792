/* Every function of gabion.h for piles, used rightly and wrongly. Ends with 0, or at the first check that fails.
 * With the argument "few" it walks over fewer objects, for tools that make everything slow. */
#include <gabion.h>
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { MANY = 100000 };
static uint64_t many = MANY;

static void check_pile_saved(const char *path) {
    gabion_pile *pile, *saved;
    uint64_t pointer, root;
    char buffer[8];
    size_t length = 0;
    OK(gabion_pile_new(0, &pile));
    OK(gabion_pile_put(pile, "stone", 5, 0, &pointer));
    OK(gabion_pile_set_root(pile, pointer));
    OK(gabion_pile_save(pile, path));
    OK(gabion_pile_open(path, 0, GABION_MUST_EXIST, &saved));
    CHECK(gabion_pile_save(pile, path) == GABION_IN_USE && gabion_pile_save(saved, path) == GABION_IN_USE);
    OK(gabion_pile_root(saved, &root));
    OK(gabion_pile_get(saved, root, buffer, sizeof buffer, &length));
    CHECK(root == pointer && length == 5 && memcmp(buffer, "stone", 5) == 0 && gabion_pile_len(saved) == 1);
    OK(gabion_pile_delete(saved));
    CHECK(gabion_pile_save(pile, NULL) == GABION_BAD_ARGUMENT && gabion_pile_save(NULL, path) == GABION_BAD_HANDLE);
    CHECK(gabion_pile_save(pile, "/") == GABION_FILE && gabion_pile_save(pile, "/dev/null") == GABION_DAMAGED);
    OK(gabion_pile_delete(pile));
}

/* Nothing of what is open to be read can be changed. */
static void check_unchangeable(gabion_pile *pile, uint64_t pointer) {
    char buffer[8];
    uint64_t put = 7;
    CHECK(gabion_pile_put(pile, "stone", 5, 0, &put) == GABION_FILE && put == 7);
    CHECK(strstr(gabion_last_error(), "GABION_READ_ONLY") != NULL);
    CHECK(gabion_pile_replace(pile, pointer, "other", 5) == GABION_FILE);
    CHECK(gabion_pile_remove(pile, pointer) == GABION_FILE && gabion_pile_clear(pile) == GABION_FILE);
    CHECK(gabion_pile_pop(pile, pointer, buffer, sizeof buffer, NULL) == GABION_FILE);
    CHECK(gabion_pile_set_root(pile, 0) == GABION_FILE && gabion_pile_compact(pile, NULL) == GABION_FILE);
    CHECK(gabion_pile_len(pile) == 1);
    OK(gabion_pile_validate(pile));
}

/* In a forked child, a pile in a file is its parent's; what it puts into one in memory, its parent refuses. */
static void check_forked(gabion_pile *pile, uint64_t pointer) {
    gabion_pile *memory;
    uint64_t of_child = 0, of_parent;
    int status, ends[2];
    pid_t child;
    OK(gabion_pile_new(0, &memory));
    CHECK(pipe(ends) == 0 && (child = fork()) >= 0);
    if (child == 0) {
        char buffer[8];
        uint64_t other = 7;
        CHECK(gabion_pile_get(pile, pointer, buffer, sizeof buffer, NULL) == GABION_IN_USE);
        CHECK(strstr(gabion_last_error(), "forked") != NULL);
        CHECK(gabion_pile_put(pile, "stone", 5, 0, &other) == GABION_IN_USE && other == 7);
        CHECK(gabion_pile_len(pile) == 0 && !gabion_pile_contains(pile, pointer));
        CHECK(gabion_pile_flush(pile) == GABION_IN_USE && gabion_pile_validate(pile) == GABION_IN_USE);
        OK(gabion_pile_delete(pile));
        OK(gabion_pile_put(memory, "child", 5, 0, &of_child));
        CHECK(write(ends[1], &of_child, sizeof of_child) == sizeof of_child);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(ends[0], &of_child, sizeof of_child) == sizeof of_child);
    OK(gabion_pile_put(memory, "parent", 6, 0, &of_parent));
    CHECK(!gabion_pile_contains(memory, of_child) && gabion_pile_contains(memory, of_parent));
    CHECK(gabion_pile_contains(pile, pointer));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    OK(gabion_pile_delete(memory));
}

static void check_pile_in_file(void) {
    gabion_pile *pile = NULL, *again = NULL;
    uint64_t pointer, root = 7;
    size_t length = 0;
    char buffer[64], path[64];
    snprintf(path, sizeof path, "/tmp/gabion-smoke-%ld.pile", (long)getpid());
    CHECK(gabion_pile_open(path, 0, GABION_MUST_EXIST, &pile) == GABION_FILE);
    CHECK(gabion_pile_open(path, 0, GABION_READ_ONLY, &pile) == GABION_FILE && pile == NULL);
    CHECK(gabion_pile_open(path, 0, 8, &pile) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_open(NULL, 0, 0, &pile) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_open(path, 0, 0, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_open("/", 0, 0, &pile) == GABION_FILE);
    OK(gabion_pile_open(path, 0, 0, &pile));
    OK(gabion_pile_put(pile, "stone", 5, 0, &pointer));
    OK(gabion_pile_root(pile, &root));
    CHECK(root == 0 && gabion_pile_set_root(pile, pointer + 1) == GABION_BAD_POINTER);
    OK(gabion_pile_set_root(pile, pointer));
    OK(gabion_pile_flush(pile));
    CHECK(gabion_pile_open(path, 0, 0, &again) == GABION_IN_USE);
    CHECK(strstr(gabion_last_error(), "open already") != NULL);
    OK(gabion_pile_delete(pile));
    OK(gabion_pile_open(path, 0, GABION_READ_ONLY, &pile));
    OK(gabion_pile_open(path, 0, GABION_READ_ONLY, &again));
    OK(gabion_pile_root(again, &root));
    OK(gabion_pile_get(pile, root, buffer, sizeof buffer, &length));
    CHECK(root == pointer && length == 5 && memcmp(buffer, "stone", 5) == 0);
    check_unchangeable(pile, pointer);
    OK(gabion_pile_delete(pile));
    OK(gabion_pile_delete(again));
    OK(gabion_pile_open(path, 1 << 20, GABION_MUST_EXIST, &pile));
    OK(gabion_pile_set_root(pile, 0));
    CHECK(gabion_pile_len(pile) == 1);
    /* Tools that look for leaks call what the parent's threads have one, in the child. */
    if (many == MANY) check_forked(pile, pointer);
    OK(gabion_pile_validate(pile));
    OK(gabion_pile_delete(pile));
    CHECK(gabion_pile_flush(NULL) == GABION_BAD_HANDLE);
    check_pile_saved(path);
    remove(path);
}

static void check_pile(void) {
    gabion_pile *pile, *tight;
    uint64_t pointer, other = 7, bytes = 0;
    size_t length = 0;
    char buffer[64], *large = malloc(3 << 20);
    gabion_pile_figures figures;
    OK(gabion_pile_new(0, &pile));
    OK(gabion_pile_put(pile, "a gabion is a cage", 18, 0, &pointer));
    CHECK(pointer != 0 && pointer >> 60 == 0 && gabion_pile_contains(pile, pointer) && gabion_pile_len(pile) == 1);
    OK(gabion_pile_get(pile, pointer, buffer, sizeof buffer, &length));
    CHECK(length == 18 && memcmp(buffer, "a gabion is a cage", 18) == 0);
    length = 0;
    CHECK(gabion_pile_get(pile, pointer, buffer, 17, &length) == GABION_TOO_SMALL && length == 18);
    CHECK(gabion_pile_get(pile, pointer, NULL, 100, &length) == GABION_TOO_SMALL);
    OK(gabion_pile_get(pile, pointer, buffer, sizeof buffer, NULL));

    CHECK(large != NULL);
    memset(large, 5, 3 << 20);
    OK(gabion_pile_replace(pile, pointer, large, 3 << 20));
    OK(gabion_pile_size_of(pile, pointer, &length));
    CHECK(length == 3 << 20);
    memset(large, 0, 3 << 20);
    OK(gabion_pile_get(pile, pointer, large, 3 << 20, NULL));
    CHECK(large[0] == 5 && memcmp(large, large + 1, (3 << 20) - 1) == 0);
    free(large);
    OK(gabion_pile_stats(pile, &figures));
    CHECK(figures.objects == 1 && figures.large_objects == 1 && figures.used_bytes == 3 << 20);
    CHECK(figures.reserved_bytes == figures.used_bytes + figures.overhead_bytes);
    OK(gabion_pile_replace(pile, pointer, NULL, 0));
    CHECK(gabion_pile_pop(pile, pointer, NULL, 0, &length) == GABION_OK && length == 0);
    CHECK(gabion_pile_pop(pile, pointer, buffer, sizeof buffer, &length) == GABION_BAD_POINTER);

    OK(gabion_pile_put(pile, "stone", 5, 100, &pointer));
    CHECK(gabion_pile_pop(pile, pointer, buffer, 2, &length) == GABION_TOO_SMALL && gabion_pile_contains(pile, pointer));
    OK(gabion_pile_remove(pile, pointer));
    CHECK(gabion_pile_remove(pile, pointer) == GABION_BAD_POINTER);
    CHECK(strstr(gabion_last_error(), "stale") != NULL);
    CHECK(gabion_pile_get(pile, pointer, buffer, sizeof buffer, &length) == GABION_BAD_POINTER);
    CHECK(gabion_pile_get(pile, 0, buffer, sizeof buffer, &length) == GABION_BAD_POINTER);
    CHECK(strstr(gabion_last_error(), "gabion_pile_put") != NULL);
    CHECK(gabion_pile_get(pile, UINT64_MAX, buffer, sizeof buffer, &length) == GABION_BAD_POINTER);
    CHECK(gabion_pile_replace(pile, pointer, "x", 1) == GABION_BAD_POINTER);
    CHECK(gabion_pile_size_of(pile, pointer, &length) == GABION_BAD_POINTER);
    CHECK(gabion_pile_put(pile, NULL, 3, 0, &other) == GABION_BAD_ARGUMENT && other == 7);
    CHECK(gabion_pile_put(pile, buffer, SIZE_MAX, 0, &other) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_put(pile, "x", 1, 0, NULL) == GABION_BAD_ARGUMENT && gabion_pile_len(pile) == 0);
    CHECK(gabion_pile_put(NULL, "x", 1, 0, &other) == GABION_BAD_HANDLE);
    CHECK(gabion_pile_put((gabion_pile *)(void *)gabion_slots_global(), "x", 1, 0, &other) == GABION_BAD_HANDLE);
    CHECK(!gabion_pile_contains(NULL, 1) && gabion_pile_len(NULL) == 0);
    OK(gabion_pile_put(pile, "x", 1, 0, &other));
    OK(gabion_pile_clear(pile));
    CHECK(!gabion_pile_contains(pile, other));
    OK(gabion_pile_validate(pile));
    OK(gabion_pile_delete(pile));
    OK(gabion_pile_delete(NULL));

    OK(gabion_pile_new(1 << 20, &tight));
    while (gabion_pile_put(tight, buffer, sizeof buffer, 0, &other) == GABION_OK) {
    }
    CHECK(gabion_pile_put(tight, buffer, sizeof buffer, 0, &other) == GABION_LIMIT && gabion_pile_len(tight) > 10000);
    OK(gabion_pile_set_max_bytes(tight, 2 << 20));
    OK(gabion_pile_put(tight, buffer, sizeof buffer, 0, &other));
    OK(gabion_pile_set_max_bytes(tight, 1));
    OK(gabion_pile_stats(tight, &figures));
    CHECK(figures.max_bytes == 1 && gabion_pile_contains(tight, other));
    OK(gabion_pile_clear(tight));
    OK(gabion_pile_compact(tight, &bytes));
    OK(gabion_pile_compact(tight, NULL));
    OK(gabion_pile_stats(tight, &figures));
    CHECK(figures.reserved_bytes == 0);
    CHECK(gabion_pile_compact(NULL, &bytes) == GABION_BAD_HANDLE);
    CHECK(gabion_pile_set_max_bytes(NULL, 1) == GABION_BAD_HANDLE);
    OK(gabion_pile_delete(tight));
}

/* How often a walk meets each of the objects, whose bytes are their numbers. */
static uint64_t walk(const gabion_pile *pile, unsigned char *met) {
    gabion_pile_cursor cursor = {{0}};
    uint64_t pointer = 7, number, count = 0;
    size_t length;
    memset(met, 0, many);
    for (;;) {
        OK(gabion_pile_next(pile, &cursor, &pointer));
        if (pointer == 0) break;
        OK(gabion_pile_get(pile, pointer, &number, sizeof number, &length));
        CHECK(length == sizeof number && number < many && met[number] == 0);
        met[number]++;
        count++;
    }
    OK(gabion_pile_next(pile, &cursor, &pointer));
    CHECK(pointer == 0);
    return count;
}

static void *change(void *pile) {
    uint64_t pointers[100], number;
    int turn;
    for (turn = 0; turn < 200; turn++) {
        for (number = 0; number < 100; number++) OK(gabion_pile_put(pile, "passing", 7, 0, &pointers[number]));
        for (number = 0; number < 100; number++) OK(gabion_pile_remove(pile, pointers[number]));
    }
    return NULL;
}

static void check_walk_beside(gabion_pile *pile) {
    gabion_pile_cursor cursor = {{0}}, copy;
    uint64_t pointer, other, count = 0;
    pthread_t thread;
    /* What another thread puts and removes meanwhile may be met or not; what stays is met once. */
    CHECK(pthread_create(&thread, NULL, change, pile) == 0);
    while (gabion_pile_next(pile, &cursor, &pointer) == GABION_OK && pointer != 0) {
        uint64_t number;
        size_t length = 0;
        const gabion_status status = gabion_pile_get(pile, pointer, &number, sizeof number, &length);
        CHECK(status == GABION_OK || status == GABION_BAD_POINTER);
        count += status == GABION_OK && length == sizeof number;
    }
    CHECK(pthread_join(thread, NULL) == 0 && count == many);
    /* A copy walks on from the same place, and what was met may be removed on the way. */
    memset(&cursor, 0, sizeof cursor);
    for (count = 0; count < many / 2; count++) OK(gabion_pile_next(pile, &cursor, &pointer));
    copy = cursor;
    for (; count < many; count++) {
        OK(gabion_pile_next(pile, &cursor, &pointer));
        OK(gabion_pile_next(pile, &copy, &other));
        CHECK(pointer == other && pointer != 0);
        OK(gabion_pile_remove(pile, pointer));
    }
    CHECK(gabion_pile_len(pile) == many - many / 2);
}

static void check_walk(void) {
    gabion_pile *pile, *other, *saved;
    gabion_pile_cursor cursor = {{0}}, room[2];
    uint64_t *pointers = malloc(many * sizeof *pointers), pointer = 7, number;
    unsigned char *met = malloc(many), *large = calloc(3, 1 << 20);
    char path[64];
    CHECK(pointers != NULL && met != NULL && large != NULL);
    OK(gabion_pile_new(0, &pile));
    OK(gabion_pile_new(0, &other));
    CHECK(walk(pile, met) == 0);
    for (number = 0; number < many; number++) {
        OK(gabion_pile_put(pile, &number, sizeof number, 0, &pointers[number]));
    }
    CHECK(walk(pile, met) == many && memchr(met, 0, many) == NULL);
    for (number = 0; number < many; number += 3) OK(gabion_pile_remove(pile, pointers[number]));
    CHECK(walk(pile, met) == gabion_pile_len(pile));
    for (number = 0; number < many; number++) CHECK(met[number] == (number % 3 != 0));
    /* Objects of all sizes are met. */
    OK(gabion_pile_put(other, NULL, 0, 0, &pointer));
    OK(gabion_pile_put(other, met, 1000, 0, &pointer));
    OK(gabion_pile_put(other, large, 3 << 20, 0, &pointer));
    for (number = 0; number < 3; number++) OK(gabion_pile_next(other, &cursor, &pointer));
    CHECK(pointer != 0 && gabion_pile_contains(other, pointer));
    /* A file has the same. */
    snprintf(path, sizeof path, "/tmp/gabion-walk-%ld.pile", (long)getpid());
    OK(gabion_pile_save(pile, path));
    OK(gabion_pile_open(path, 0, GABION_READ_ONLY, &saved));
    CHECK(walk(saved, met) == gabion_pile_len(pile));
    OK(gabion_pile_delete(saved));
    remove(path);
    for (number = 0; number < many; number += 3) {
        OK(gabion_pile_put(pile, &number, sizeof number, 0, &pointers[number]));
    }
    check_walk_beside(pile);

    pointer = 7;
    CHECK(gabion_pile_next(pile, &cursor, &pointer) == GABION_BAD_ARGUMENT);
    CHECK(strstr(gabion_last_error(), "another pile") != NULL);
    memset(room, 0xa5, sizeof room);
    CHECK(gabion_pile_next(pile, &room[0], &pointer) == GABION_BAD_ARGUMENT);
    CHECK(strstr(gabion_last_error(), "the cursor is none") != NULL);
    /* One that another copy of the library began. */
    room[0] = cursor;
    room[0].state[0] += 8;
    CHECK(gabion_pile_next(other, &room[0], &pointer) == GABION_BAD_ARGUMENT);
    memset(room, 0, sizeof room);
    CHECK(gabion_pile_next(pile, (gabion_pile_cursor *)(void *)((char *)room + 1), &pointer) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_next(pile, NULL, &pointer) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_next(pile, room, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_next(NULL, room, &pointer) == GABION_BAD_HANDLE && pointer == 7 && room[0].state[0] == 0);
    OK(gabion_pile_delete(pile));
    OK(gabion_pile_delete(other));
    free(pointers);
    free(met);
    free(large);
}

/* The next pile may lie where the deleted one lay. */
static void check_walk_after_its_pile(void) {
    gabion_pile *first, *next[8];
    gabion_pile_cursor cursor;
    uint64_t pointer;
    unsigned at, times;

    for (times = 0; times < 10; times++) {
        memset(&cursor, 0, sizeof cursor);
        OK(gabion_pile_new(0, &first));
        OK(gabion_pile_put(first, "a", 1, 0, &pointer));
        OK(gabion_pile_next(first, &cursor, &pointer));
        OK(gabion_pile_delete(first));
        for (at = 0; at < 8; at++) {
            OK(gabion_pile_new(0, &next[at]));
            CHECK(gabion_pile_next(next[at], &cursor, &pointer) == GABION_BAD_ARGUMENT);
            CHECK(strstr(gabion_last_error(), "another pile") != NULL);
        }
        for (at = 0; at < 8; at++) {
            OK(gabion_pile_delete(next[at]));
        }
    }
}

static void *unview(void *view) {
    OK(gabion_pile_unview(view));
    return NULL;
}

static void check_views_of(gabion_pile *pile, const char *bytes, size_t size) {
    gabion_view *view, *second, *third;
    const void *data = NULL, *again = NULL, *other = NULL;
    uint64_t pointer;
    size_t length = 7;
    pthread_t thread;
    OK(gabion_pile_put(pile, bytes, size, 0, &pointer));
    OK(gabion_pile_view(pile, pointer, &data, &length, &view));
    CHECK(length == size && data != NULL && (uintptr_t)data % 8 == 0 && memcmp(data, bytes, size) == 0);
    OK(gabion_pile_view(pile, pointer, &again, &length, &second));
    CHECK(again == data && length == size && second != view);
    OK(gabion_pile_unview(second));
    /* Other bytes lie elsewhere. */
    OK(gabion_pile_replace(pile, pointer, "other", 5));
    CHECK(memcmp(data, bytes, size) == 0);
    OK(gabion_pile_view(pile, pointer, &other, &length, &third));
    CHECK(length == 5 && memcmp(other, "other", 5) == 0);
    /* What is removed is there for who views it, whatever is put meanwhile. */
    OK(gabion_pile_remove(pile, pointer));
    CHECK(gabion_pile_view(pile, pointer, &again, &length, &second) == GABION_BAD_POINTER && again == data);
    OK(gabion_pile_clear(pile));
    OK(gabion_pile_put(pile, bytes + 1, size, 0, &pointer));
    OK(gabion_pile_compact(pile, NULL));
    CHECK(memcmp(data, bytes, size) == 0 && memcmp(other, "other", 5) == 0);
    OK(gabion_pile_unview(third));
    CHECK(pthread_create(&thread, NULL, unview, view) == 0 && pthread_join(thread, NULL) == 0);
    OK(gabion_pile_clear(pile));
    OK(gabion_pile_validate(pile));
}

static void check_view(void) {
    static const size_t sizes[] = {0, 1, 8, 100, 1024, 1025, 100000, 1 << 20, (1 << 20) + 1, 5 << 20};
    gabion_pile *pile, *again;
    gabion_view *view = NULL;
    const void *data = NULL;
    uint64_t pointer;
    size_t size, length = 7;
    char *bytes = malloc((5 << 20) + 1), path[64];
    CHECK(bytes != NULL);
    for (size = 0; size < (5 << 20) + 1; size++) bytes[size] = (char)(size * 7 % 251);
    OK(gabion_pile_new(0, &pile));
    for (size = 0; size < sizeof sizes / sizeof *sizes; size++) check_views_of(pile, bytes, sizes[size]);
    OK(gabion_pile_put(pile, "stone", 5, 0, &pointer));
    CHECK(gabion_pile_view(NULL, pointer, &data, &length, &view) == GABION_BAD_HANDLE);
    CHECK(gabion_pile_view(pile, 0, &data, &length, &view) == GABION_BAD_POINTER);
    CHECK(gabion_pile_view(pile, pointer, NULL, &length, &view) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_view(pile, pointer, &data, NULL, &view) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pile_view(pile, pointer, &data, &length, NULL) == GABION_BAD_ARGUMENT);
    CHECK(data == NULL && length == 7 && view == NULL);
    OK(gabion_pile_unview(NULL));
    CHECK(gabion_pile_unview((gabion_view *)(void *)pile) == GABION_BAD_HANDLE);
    CHECK(gabion_pile_len(pile) == 1);
    /* The pile is there as long as its views are. */
    OK(gabion_pile_view(pile, pointer, &data, &length, &view));
    CHECK(gabion_pile_delete((gabion_pile *)(void *)view) == GABION_BAD_HANDLE);
    OK(gabion_pile_delete(pile));
    CHECK(length == 5 && memcmp(data, "stone", 5) == 0);
    OK(gabion_pile_unview(view));
    /* And so is its file. */
    snprintf(path, sizeof path, "/tmp/gabion-view-%ld.pile", (long)getpid());
    OK(gabion_pile_open(path, 0, 0, &pile));
    check_views_of(pile, bytes, 100);
    check_views_of(pile, bytes, 5 << 20);
    OK(gabion_pile_put(pile, bytes, 2 << 20, 0, &pointer));
    OK(gabion_pile_view(pile, pointer, &data, &length, &view));
    OK(gabion_pile_delete(pile));
    CHECK(gabion_pile_open(path, 0, 0, &again) == GABION_IN_USE);
    CHECK(length == 2 << 20 && memcmp(data, bytes, 2 << 20) == 0);
    OK(gabion_pile_unview(view));
    OK(gabion_pile_open(path, 0, 0, &again));
    CHECK(gabion_pile_contains(again, pointer));
    OK(gabion_pile_delete(again));
    remove(path);
    free(bytes);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "few") == 0) many = MANY / 20;
    check_pile();
    check_pile_in_file();
    check_walk();
    check_walk_after_its_pile();
    check_view();
    puts("all well");
    return 0;
}
