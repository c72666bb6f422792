/* Two libraries, each with a copy of gabion, in one program that has none itself. */
#include <gabion.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct copy {
    void (*check)(void);
    gabion_slots *(*slots)(void);
    gabion_pile *(*pile)(void);
    gabion_status (*use_slots)(gabion_slots *);
    gabion_status (*use_pile)(gabion_pile *);
} copy;

/* POSIX has a function's address come as that of an object. */
static void find(void *library, const char *name, void *place) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(place, &found, sizeof found);
}

static copy load(const char *path) {
    copy loaded;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    find(library, "copy_check", &loaded.check);
    find(library, "copy_slots", &loaded.slots);
    find(library, "copy_pile", &loaded.pile);
    find(library, "copy_use_slots", &loaded.use_slots);
    find(library, "copy_use_pile", &loaded.use_pile);
    return loaded;
}

int main(int count, char **arguments) {
    copy one, two;
    gabion_pile *piles[2];
    CHECK(count == 3);
    one = load(arguments[1]);
    one.check();
    two = load(arguments[2]);
    two.check();
    one.check();
    CHECK(one.slots() != two.slots());
    CHECK(one.use_slots(one.slots()) == GABION_OK && two.use_slots(two.slots()) == GABION_OK);
    CHECK(one.use_slots(two.slots()) == GABION_BAD_HANDLE && two.use_slots(one.slots()) == GABION_BAD_HANDLE);
    piles[0] = one.pile();
    piles[1] = two.pile();
    CHECK(one.use_pile(piles[0]) == GABION_OK && two.use_pile(piles[1]) == GABION_OK);
    CHECK(one.use_pile(piles[1]) == GABION_BAD_HANDLE && two.use_pile(piles[0]) == GABION_BAD_HANDLE);
    puts("all well");
    return 0;
}
