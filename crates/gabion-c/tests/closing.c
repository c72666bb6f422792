/* The shared library, opened, used by a thread and closed again and again, as a program does with its plugins. The pool's thread
 * that gives memory back may still be about to begin, or asleep, when the last handle is closed. */
#include <gabion.h>

#include <dlfcn.h>
#include <pthread.h>
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

/* POSIX has a function's address come as that of an object. */
static void find(void *library, const char *name, void *place) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(place, &found, sizeof found);
}

static void *lend_once(void *library) {
    gabion_status (*rent)(size_t, uint32_t, void **);
    gabion_status (*give_back)(void *);
    void *memory;
    find(library, "gabion_rent", &rent);
    find(library, "gabion_return", &give_back);
    CHECK(rent(3 << 20, 0, &memory) == GABION_OK);
    memset(memory, 1, 3 << 20);
    CHECK(give_back(memory) == GABION_OK);
    return NULL;
}

int main(int count, char **arguments) {
    int round;
    CHECK(count == 2);
    for (round = 0; round < 100; round++) {
        pthread_t thread;
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), *again;
        CHECK(library != NULL);
        if (round > 0) CHECK(pthread_create(&thread, NULL, lend_once, library) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(dlclose(library) == 0);
        again = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD);
        CHECK(again != NULL && dlclose(again) == 0);
    }
    puts("all well");
    return 0;
}
