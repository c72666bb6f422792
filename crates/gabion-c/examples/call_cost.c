/* What a call through C costs; `cargo run --release -p gabion-c --example call_cost` builds and runs it. */
#include <gabion.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Short trials, of which the best counts, so that other programs do not. */
enum { LIVE = 1000, ROUNDS = 20, TRIALS = 500 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(void) {
    static void *objects[LIVE];
    gabion_slots *slots = gabion_slots_global();
    double best[3] = {1e9, 1e9, 1e9};
    int kind, trial, round, index;
    for (kind = 0; kind < 3; kind++) {
        for (trial = 0; trial < TRIALS; trial++) {
            const double start = now();
            double pair;
            for (round = 0; round < ROUNDS; round++) {
                for (index = 0; index < LIVE; index++) {
                    if (kind == 2)
                        objects[index] = malloc(48);
                    else if (gabion_slots_alloc(slots, GABION_NODES, 48, 0, &objects[index]) != GABION_OK)
                        return 1;
                }
                for (index = 0; index < LIVE; index++) {
                    if (kind == 0) gabion_slots_free(slots, objects[index]);
                    if (kind == 1) gabion_slots_free_sized(slots, GABION_NODES, objects[index], 48, 0);
                    if (kind == 2) free(objects[index]);
                }
            }
            pair = (now() - start) / ROUNDS / LIVE;
            if (pair < best[kind]) best[kind] = pair;
        }
    }
    printf("free %.2f ns, sized free %.2f ns, malloc and free %.2f ns\n", best[0], best[1], best[2]);
    return 0;
}
