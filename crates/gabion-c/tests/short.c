/* Slots of a process that gets no more memory: new ones are refused, and those that there are go back without any. */
#include <gabion.h>
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Less than the tables of new slots, more than anything else here needs. */
enum { PIECE = 100000 };

struct piece {
    struct piece *next;
    char rest[PIECE];
};

int main(void) {
    struct rlimit limit = {64 << 20, 64 << 20};
    struct piece *pieces = NULL, *piece, *second;
    gabion_slots *slots, *more, *used, *idle;
    void *here, *small, *smalls = NULL;
    void *object, *other;
    size_t size;
    CHECK(gabion_slots_new(&slots) == GABION_OK && gabion_slots_alloc(slots, GABION_NODES, 48, 0, &object) == GABION_OK);
    CHECK(gabion_slots_new(&used) == GABION_OK && gabion_slots_alloc(used, GABION_NODES, 48, 0, &here) == GABION_OK);
    CHECK(gabion_slots_new(&idle) == GABION_OK);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    while ((piece = malloc(sizeof *piece)) != NULL) {
        piece->next = pieces;
        pieces = piece;
    }
    /* The second of all lies among others, so that malloc keeps it. */
    for (piece = pieces; piece->next->next->next != NULL; piece = piece->next) {
    }
    second = piece->next;
    piece->next = second->next;
    free(second);
    CHECK(gabion_slots_new(&more) == GABION_NO_MEMORY);
    CHECK(gabion_slots_global() == NULL);
    /* Nor is there memory for what a thread has of slots, or for its first chunk. */
    CHECK(gabion_slots_alloc(idle, GABION_NODES, 2000, 0, &other) == GABION_NO_MEMORY);
    CHECK(strstr(gabion_last_error(), "arenas") == NULL);
    CHECK(gabion_slots_free(slots, object) == GABION_OK && gabion_slots_delete(slots) == GABION_OK);
    CHECK(gabion_slots_free(used, here) == GABION_OK && gabion_slots_alloc(used, GABION_NODES, 48, 0, &here) == GABION_OK);
    for (size = 4 << 20; size >= sizeof(void *); size /= 2) {
        while ((small = malloc(size)) != NULL) {
            *(void **)small = smalls;
            smalls = small;
        }
    }
    CHECK(gabion_slots_alloc(used, GABION_NODES, 2000, 0, &other) == GABION_NO_MEMORY);
    while ((small = smalls) != NULL) {
        smalls = *(void **)small;
        free(small);
    }
    CHECK(gabion_slots_delete(used) == GABION_OK && gabion_slots_delete(idle) == GABION_OK);
    while ((piece = pieces) != NULL) {
        pieces = piece->next;
        free(piece);
    }
    CHECK(gabion_slots_global() != NULL && gabion_slots_new(&more) == GABION_OK && gabion_slots_delete(more) == GABION_OK);
    puts("all well");
    return 0;
}
