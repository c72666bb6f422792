/* Every function of gabion.h for slots and the pool, used rightly and wrongly. Ends with 0, or at the first check that fails.
 * With the argument "few" it hands fewer objects over between threads, for tools that make everything slow. */
#include <gabion.h>
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20000 };
static size_t many = MANY;

static uint64_t live(gabion_slots *slots) {
    gabion_slots_figures figures;
    OK(gabion_slots_flush(slots));
    OK(gabion_slots_stats(slots, GABION_ALL_AFFINITIES, &figures));
    return figures.live_objects;
}

static void check_texts(void) {
    int32_t number;
    CHECK(strcmp(gabion_version(), GABION_VERSION) == 0);
    CHECK(strcmp(gabion_status_text(GABION_OK), "done") == 0);
    for (number = -2; number < 20; number++) CHECK(strlen(gabion_status_text(number)) > 3);
    CHECK(gabion_status_text(INT32_MAX) == gabion_status_text(INT32_MIN));
}

static void check_slots(gabion_slots *slots) {
    static const size_t sizes[] = {0, 1, 8, 24, 100, 1024, 1025, 40000, 1 << 20, (1 << 20) + 1, 5 << 20};
    const size_t count = sizeof sizes / sizeof *sizes;
    void *objects[11][6];
    size_t size, alignment;
    for (size = 0; size < count; size++) {
        for (alignment = 0; alignment < 6; alignment++) {
            const size_t align = alignment == 0 ? 0 : (size_t)1 << (2 * alignment);
            unsigned char *object;
            OK(gabion_slots_alloc_zeroed(slots, GABION_DATA, sizes[size], align, &objects[size][alignment]));
            object = objects[size][alignment];
            CHECK(align == 0 || (uintptr_t)object % align == 0);
            CHECK(gabion_slots_usable_size(slots, object) >= sizes[size]);
            CHECK(gabion_slots_owns(slots, object));
            if (sizes[size] > 0) {
                CHECK(object[0] == 0 && object[sizes[size] - 1] == 0 && memcmp(object, object + 1, sizes[size] - 1) == 0);
                memset(object, (int)size + 1, sizes[size]);
            }
        }
    }
    CHECK(live(slots) == count * 6);
    OK(gabion_slots_validate(slots));
    for (size = 0; size < count; size++) {
        for (alignment = 0; alignment < 6; alignment++) {
            const size_t align = alignment == 0 ? 0 : (size_t)1 << (2 * alignment);
            unsigned char *object = objects[size][alignment];
            CHECK(sizes[size] == 0 || (object[0] == size + 1 && object[sizes[size] - 1] == size + 1));
            if ((size + alignment) % 2 == 0)
                OK(gabion_slots_free(slots, object));
            else
                OK(gabion_slots_free_sized(slots, GABION_DATA, object, sizes[size], align));
        }
    }
    CHECK(live(slots) == 0);
    OK(gabion_slots_validate(slots));
}

static void check_realloc(gabion_slots *slots) {
    static const size_t steps[] = {10, 11, 500, 3000, 2 << 20, 100, 5 << 20, 1};
    char *object = NULL;
    void *moved;
    size_t step, kept = 0, index;
    for (step = 0; step < sizeof steps / sizeof *steps; step++) {
        OK(gabion_slots_realloc(slots, GABION_OBJECTS, object, steps[step], 0, &moved));
        object = moved;
        for (index = 0; index < (kept < steps[step] ? kept : steps[step]); index++) CHECK(object[index] == (char)index);
        for (index = 0; index < steps[step]; index++) object[index] = (char)index;
        kept = steps[step];
        CHECK(live(slots) == 1);
    }
    /* What a slot of the same size serves stays where it is; what another one serves moves, and so does what was no slot. */
    for (step = 1; step <= 1024; step++) {
        const size_t least = step <= 256 ? (step - 1) / 8 * 8 + 1 : step;
        void *small, *behind;
        OK(gabion_slots_alloc(slots, GABION_OBJECTS, step, 0, &small));
        memset(small, 3, step);
        OK(gabion_slots_realloc(slots, GABION_OBJECTS, small, least, 0, &moved));
        CHECK(moved == small);
        OK(gabion_slots_realloc(slots, GABION_OBJECTS, moved, gabion_slots_usable_size(slots, moved), 0, &moved));
        CHECK(moved == small);
        OK(gabion_slots_realloc(slots, GABION_OBJECTS, moved, step + 80, 0, &moved));
        CHECK(moved != small && *(char *)moved == 3);
        OK(gabion_slots_free_sized(slots, GABION_OBJECTS, moved, step + 80, 0));
        OK(gabion_slots_alloc(slots, GABION_OBJECTS, step, 2048, &behind));
        OK(gabion_slots_realloc(slots, GABION_OBJECTS, behind, step, 0, &moved));
        OK(gabion_slots_free_sized(slots, GABION_OBJECTS, moved, step, 0));
    }
    /* The size to name is the new one, whatever kind of memory the object was in. */
    for (step = 0; step < 64; step++) {
        static const size_t sizes[] = {1, 90, 700, 1024, 1025, 1500, 600000, 1100000};
        static const size_t alignments[] = {0, 16, 2048};
        for (index = 0; index < 3; index++) {
            const size_t from = sizes[step / 8], to = sizes[step % 8], align = alignments[index];
            void *old;
            OK(gabion_slots_alloc(slots, GABION_OBJECTS, from, align, &old));
            OK(gabion_slots_realloc(slots, GABION_OBJECTS, old, to, 0, &moved));
            OK(gabion_slots_free_sized(slots, GABION_OBJECTS, moved, to, 0));
        }
    }
    OK(gabion_slots_validate(slots));
    CHECK(live(slots) == 1);
    /* What is free already is refused, whatever would become of it. */
    for (step = 0; step < 7; step++) {
        static const size_t sizes[] = {0, 1, 1024, 1025, 3000, 100000, 1 << 20};
        const size_t asked[] = {sizes[step], 1, sizes[step] * 2 + 1, 6000};
        for (index = 0; index < 4; index++) {
            void *freed, *other = &step;
            OK(gabion_slots_alloc(slots, GABION_DATA, sizes[step], 0, &moved));
            OK(gabion_slots_alloc(slots, GABION_DATA, sizes[step], 0, &freed));
            OK(gabion_slots_free(slots, freed));
            CHECK(gabion_slots_realloc(slots, GABION_DATA, freed, asked[index], 0, &other) == GABION_DOUBLE_FREE);
            CHECK(other == (void *)&step);
            OK(gabion_slots_free(slots, moved));
        }
    }
    OK(gabion_slots_validate(slots));
    CHECK(live(slots) == 1);
    /* What fails leaves the object as it was. */
    moved = &step;
    CHECK(gabion_slots_realloc(slots, GABION_OBJECTS, object, 100, 3, &moved) == GABION_BAD_ARGUMENT);
    CHECK(moved == &step && *object == 0);
    OK(gabion_slots_free(slots, object));
    CHECK(live(slots) == 0);
}

/* What grows in many small steps is copied by few of them. */
static void check_growth(gabion_slots *slots) {
    static const size_t ways[2][3] = {{1100, 1 << 20, 1000}, {2 << 20, 60 << 20, 60000}};
    size_t way;
    for (way = 0; way < 2; way++) {
        const size_t last = ways[way][1], step = ways[way][2];
        size_t size = ways[way][0], moves = 0;
        unsigned char *object;
        void *moved;
        OK(gabion_slots_alloc(slots, GABION_PHYSICS, size, 0, &moved));
        object = moved;
        memset(object, 1, size);
        while (size + step <= last) {
            OK(gabion_slots_realloc(slots, GABION_PHYSICS, object, size + step, 0, &moved));
            moves += moved != object;
            object = moved;
            CHECK(object[0] == 1 && object[size - 1] == 1);
            memset(object + size, 1, step);
            size += step;
        }
        CHECK(moves < 30);
        OK(gabion_slots_free_sized(slots, GABION_PHYSICS, object, size, 0));
    }
    OK(gabion_slots_validate(slots));
    CHECK(live(slots) == 0);
}

static void check_wrong_use(gabion_slots *slots) {
    int here = 0;
    uint32_t affinity = 77;
    gabion_status status;
    size_t size;
    void *object, *other = &here;
    gabion_slots_figures figures;
    OK(gabion_slots_alloc(slots, GABION_NODES, 48, 0, &object));
    CHECK(gabion_slots_free(slots, (char *)object + 1) == GABION_BAD_POINTER);
    CHECK(gabion_slots_free(slots, &here) == GABION_FOREIGN);
    CHECK(strlen(gabion_last_error()) > 0);
    OK(gabion_slots_free(slots, object));
    CHECK(gabion_slots_free(slots, object) == GABION_DOUBLE_FREE);
    OK(gabion_slots_free(slots, NULL));
    OK(gabion_slots_free_sized(slots, GABION_NODES, NULL, 48, 0));
    /* A checked build compares; any other takes the object's own word. */
    OK(gabion_slots_alloc(slots, GABION_NODES, 48, 0, &object));
    status = gabion_slots_free_sized(slots, GABION_DATA, object, 48, 0);
    CHECK(status == GABION_OK || status == GABION_WRONG_AFFINITY);
    if (status == GABION_OK) OK(gabion_slots_alloc(slots, GABION_NODES, 48, 0, &object));
    status = gabion_slots_free_sized(slots, GABION_NODES, object, 900, 0);
    CHECK(status == GABION_OK || status == GABION_WRONG_SIZE);
    if (status != GABION_OK) OK(gabion_slots_free(slots, object));
    CHECK(gabion_slots_realloc(slots, GABION_NODES, &here, 8, 0, &other) == GABION_FOREIGN && other == &here);
    /* Who names no affinity is told so, also where the object would stay where it is. */
    OK(gabion_slots_alloc(slots, GABION_NODES, 48, 0, &object));
    CHECK(gabion_slots_realloc(slots, 200, object, 48, 0, &other) == GABION_BAD_ARGUMENT && other == &here);
    CHECK(gabion_slots_realloc(slots, 100000, object, 48, 0, &other) == GABION_BAD_ARGUMENT && other == &here);
    OK(gabion_slots_free(slots, object));
    CHECK(!gabion_slots_owns(slots, &here) && !gabion_slots_owns(slots, NULL));
    CHECK(gabion_slots_usable_size(slots, &here) == 0 && gabion_slots_usable_size(slots, NULL) == 0);

    CHECK(gabion_slots_alloc(NULL, GABION_NODES, 8, 0, &other) == GABION_BAD_HANDLE);
    CHECK(gabion_slots_alloc(slots, GABION_NODES, 8, 0, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_alloc(slots, 200, 8, 0, &other) == GABION_BAD_ARGUMENT);
    CHECK(strstr(gabion_last_error(), "make it with gabion_slots_affinity") != NULL);
    CHECK(gabion_slots_alloc(slots, 100000, 8, 0, &other) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_alloc(slots, GABION_NODES, 8, 3, &other) == GABION_BAD_ARGUMENT);
    CHECK(strstr(gabion_last_error(), "an alignment of 3") != NULL);
    for (size = 8 << 20; size != 0; size *= 2) {
        CHECK(gabion_slots_alloc(slots, GABION_NODES, 8, size, &other) == GABION_BAD_ARGUMENT);
        CHECK(strstr(gabion_last_error(), "up to 4 MiB") != NULL);
    }
    CHECK(gabion_slots_alloc(slots, GABION_NODES, 8, SIZE_MAX, &other) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_release(slots, 77, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_release(slots, 100000, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_alloc(slots, GABION_NODES, SIZE_MAX, 0, &other) == GABION_LIMIT);
    CHECK(gabion_slots_alloc(slots, GABION_NODES, (size_t)1 << 62, 0, &other) == GABION_LIMIT);
    CHECK(strstr(gabion_last_error(), "more than this machine's memory") != NULL);
    CHECK(gabion_slots_alloc(slots, GABION_NODES, SIZE_MAX / 2 - 4096, 0, &other) != GABION_OK && other == &here);
    CHECK(gabion_slots_new(NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_affinity(slots, NULL, 0, GABION_NO_LIMIT, &affinity) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_affinity(slots, "", 0, GABION_NO_LIMIT, &affinity) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_affinity(slots, "odd", 24, GABION_NO_LIMIT, &affinity) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_affinity(slots, "\xff", 0, GABION_NO_LIMIT, &affinity) == GABION_BAD_ARGUMENT && affinity == 77);
    CHECK(gabion_slots_stats(slots, 200, &figures) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_stats(slots, 0, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_slots_delete((gabion_slots *)(void *)"not a handle, but long enough to be looked at") == GABION_BAD_HANDLE);
    CHECK(gabion_slots_delete(gabion_slots_global()) == GABION_BAD_ARGUMENT);
    OK(gabion_slots_delete(NULL));
    CHECK(live(slots) == 0);
}

static void check_affinities(gabion_slots *slots) {
    uint32_t own, again;
    uint64_t released;
    char name[8], *report;
    size_t needed;
    void *object;
    int count;
    gabion_slots_figures figures;
    OK(gabion_slots_affinity(slots, "edges", 32, 1, &own));
    OK(gabion_slots_affinity(slots, "edges", 0, GABION_NO_LIMIT, &again));
    CHECK(own == again && gabion_slots_affinities(slots) == own + 1);
    OK(gabion_slots_settings(slots, own, &needed, &released));
    CHECK(needed == 32 && released == 1);
    OK(gabion_slots_settings(slots, GABION_NODES, NULL, &released));
    OK(gabion_slots_settings(slots, GABION_NODES, &needed, NULL));
    CHECK(needed == 8 && released == GABION_NO_LIMIT);
    CHECK(gabion_slots_settings(slots, own + 1, &needed, &released) == GABION_BAD_ARGUMENT);
    OK(gabion_slots_affinity_name(slots, own, name, sizeof name, &needed));
    CHECK(strcmp(name, "edges") == 0 && needed == 6);
    CHECK(gabion_slots_affinity_name(slots, own, name, 4, &needed) == GABION_TOO_SMALL && strcmp(name, "edg") == 0);
    CHECK(gabion_slots_affinity_name(slots, own + 1, name, sizeof name, NULL) == GABION_BAD_ARGUMENT);

    /* One block is all it may take. */
    for (count = 0; gabion_slots_alloc(slots, own, 1000, 0, &object) == GABION_OK; count++) {
        CHECK((uintptr_t)object % 32 == 0 && count < 4200);
    }
    CHECK(gabion_slots_alloc(slots, own, 1000, 0, &object) == GABION_LIMIT && count > 3000);
    OK(gabion_slots_stats(slots, own, &figures));
    CHECK(figures.live_objects == (uint64_t)count && figures.blocks == 1 && figures.live_bytes >= 1000u * (unsigned)count);
    CHECK(figures.mapped_bytes == figures.live_bytes + figures.free_bytes + figures.wasted_bytes);
    OK(gabion_slots_configure(slots, own, 0, GABION_NO_LIMIT));
    OK(gabion_slots_alloc(slots, own, 1000, 0, &object));

    CHECK(gabion_slots_report(slots, NULL, 0, &needed) == GABION_TOO_SMALL && needed > 10);
    report = malloc(needed);
    CHECK(report != NULL);
    OK(gabion_slots_report(slots, report, needed, NULL));
    CHECK(strlen(report) == needed - 1 && strstr(report, "edges") != NULL);
    free(report);

    OK(gabion_slots_release(slots, own, &released));
    CHECK(released >= 1000u * (unsigned)count && live(slots) == 0);
    OK(gabion_slots_release(slots, own, NULL));
    gabion_slots_trim(slots);
    OK(gabion_slots_validate(slots));
}

struct handed {
    gabion_slots *slots;
    void *objects[MANY];
};

static void *free_them(void *argument) {
    struct handed *handed = argument;
    size_t index;
    for (index = 0; index < many; index++) OK(gabion_slots_free(handed->slots, handed->objects[index]));
    for (index = 0; index < many; index++) {
        OK(gabion_slots_alloc(handed->slots, GABION_NODES, 16 + index % 200, 0, &handed->objects[index]));
    }
    OK(gabion_slots_flush(handed->slots));
    return NULL;
}

static void check_threads(gabion_slots *slots) {
    struct handed *handed = malloc(4 * sizeof *handed);
    pthread_t threads[4];
    size_t thread, index;
    CHECK(handed != NULL);
    for (thread = 0; thread < 4; thread++) {
        handed[thread].slots = slots;
        for (index = 0; index < many; index++) {
            OK(gabion_slots_alloc(slots, GABION_NODES, 16 + index % 200, 0, &handed[thread].objects[index]));
        }
    }
    for (thread = 0; thread < 4; thread++) CHECK(pthread_create(&threads[thread], NULL, free_them, &handed[thread]) == 0);
    for (thread = 0; thread < 4; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
    CHECK(live(slots) == 4 * many);
    for (thread = 0; thread < 4; thread++) {
        for (index = 0; index < many; index++) OK(gabion_slots_free(slots, handed[thread].objects[index]));
    }
    CHECK(live(slots) == 0);
    free(handed);
}

static void check_pool(void) {
    static const size_t sizes[] = {0, 100, 5000, 100000, 1 << 20, 3 << 20, 8 << 20};
    gabion_pool_figures before, after;
    unsigned char *memory;
    size_t index;
    void *lent, *here = &before;
    OK(gabion_pool_stats(&before));
    OK(gabion_rent(3 << 20, GABION_CLEAN, &lent));
    memory = lent;
    CHECK((uintptr_t)memory % 64 == 0 && memory[0] == 0 && memory[(3 << 20) - 1] == 0);
    CHECK(gabion_rented_size(memory) >= 3 << 20 && gabion_rented_size(&before) == 0);
    memset(memory, 7, 3 << 20);
    OK(gabion_pool_stats(&after));
    CHECK(after.in_use >= before.in_use + (3 << 20) && after.live == before.live + 1);
    CHECK(after.mapped == after.in_use + after.idle);
    OK(gabion_return(memory));
    OK(gabion_return(NULL));
    CHECK(gabion_return(here) == GABION_FOREIGN);
    for (index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        OK(gabion_rent(sizes[index], 0, &lent));
        memory = lent;
        CHECK(gabion_rented_size(memory) >= sizes[index]);
        CHECK(gabion_return(memory + 30) == GABION_FOREIGN && gabion_rented_size(memory + 30) == 0);
        CHECK(gabion_return(memory + sizes[index] / 2 + 1) == GABION_FOREIGN);
        CHECK(gabion_return(memory + gabion_rented_size(memory)) == GABION_FOREIGN);
        OK(gabion_return(memory));
        CHECK(gabion_return(memory) == GABION_FOREIGN && gabion_rented_size(memory) == 0);
        CHECK(strstr(gabion_last_error(), "returned already") != NULL);
    }
    OK(gabion_rent(0, 0, &lent));
    OK(gabion_return(lent));

    CHECK(gabion_rent(8, 0, NULL) == GABION_BAD_ARGUMENT);
    CHECK(gabion_rent(8, 2, &here) == GABION_BAD_ARGUMENT && here == (void *)&before);
    CHECK(gabion_rent(SIZE_MAX, 0, &here) != GABION_OK && here == (void *)&before);
    OK(gabion_pool_configure(GABION_POOL_ALLOCATION_LIMIT, 1 << 20));
    CHECK(gabion_rent(2 << 20, 0, &here) == GABION_LIMIT);
    OK(gabion_pool_configure(GABION_POOL_ALLOCATION_LIMIT, GABION_NO_LIMIT));
    OK(gabion_pool_configure(GABION_POOL_TOTAL_LIMIT, 8 << 20));
    OK(gabion_rent(6 << 20, 0, &lent));
    CHECK(gabion_rent_wait(6 << 20, 0, 20, &here) == GABION_TIMED_OUT);
    OK(gabion_return(lent));
    OK(gabion_rent_wait(6 << 20, 0, 20, &lent));
    OK(gabion_return(lent));
    OK(gabion_pool_configure(GABION_POOL_TOTAL_LIMIT, GABION_NO_LIMIT));
    OK(gabion_pool_configure(GABION_POOL_BYTES, 64 << 20));
    OK(gabion_pool_configure(GABION_POOL_ARENAS, 16));
    OK(gabion_pool_configure(GABION_POOL_TRIM_PERIOD_MS, 60000));
    CHECK(gabion_pool_configure(GABION_POOL_ARENAS, 3) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pool_configure(99, 3) == GABION_BAD_ARGUMENT);
    CHECK(gabion_pool_stats(NULL) == GABION_BAD_ARGUMENT);
    gabion_pool_trim(true);
}

int main(int count, char **arguments) {
    gabion_slots *slots;
    void *forgotten;
    if (count > 1 && strcmp(arguments[1], "few") == 0) many = MANY / 20;
    CHECK(strcmp(gabion_last_error(), "") == 0);
    check_texts();
    OK(gabion_slots_new(&slots));
    check_slots(slots);
    check_realloc(slots);
    check_growth(slots);
    check_wrong_use(slots);
    check_affinities(slots);
    check_threads(slots);
    /* What is still there goes with the slots. */
    OK(gabion_slots_alloc(slots, GABION_DATA, 100, 0, &forgotten));
    OK(gabion_slots_alloc(slots, GABION_DATA, 20 << 20, 0, &forgotten));
    OK(gabion_slots_delete(slots));
    CHECK(gabion_slots_global() != NULL && gabion_slots_global() == gabion_slots_global());
    check_slots(gabion_slots_global());
    check_pool();
    puts("all well");
    return 0;
}
