// The first use of gabion.hpp: beside a fork, and while there is no memory for the slots of the process.
#include <gabion.hpp>
#include "check.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using gabion::affinity;

struct node : gabion::in_slots<affinity::nodes> {
    int numbers[4];
};

void use() {
    delete new node;
    auto &slots = gabion::slots::global();
    CHECK(slots.deallocate(slots.allocate(affinity::nodes, 24)) == GABION_OK);
}

// Runs something in a child, where an alarm ends what waits for ever. Whether it came to its end.
template <class Act> bool in_child(Act act) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        act();
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

// A child that is forked while another thread is at its first use has a first use of its own.
void fork_beside_a_first_use(int microseconds) {
    CHECK(in_child([=] {
        std::atomic<bool> begun{false};
        std::thread other([&] {
            begun = true;
            use();
        });
        while (!begun) {
        }
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
        while (std::chrono::steady_clock::now() < until) {
        }
        const bool well = in_child(use);
        other.join();
        CHECK(well);
    }));
}

rlim_t mapped() {
    unsigned long pages = 0;
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    CHECK(file != nullptr && std::fscanf(file, "%lu", &pages) == 1 && std::fclose(file) == 0);
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

#ifdef __cpp_lib_memory_resource
template <class Resource> bool serves(Resource &resource) {
    try {
        resource.deallocate(resource.allocate(100), 100);
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}
#endif

// Once there is memory again, all that was refused is served.
void want_of_memory_passes() {
    rlimit before{};
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur = mapped();
    CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
    CHECK(new (std::nothrow) node == nullptr);
    auto &slots = gabion::slots::global();
    CHECK(slots.try_allocate(affinity::nodes, 24) == nullptr && slots.handle() == nullptr);
#ifdef __cpp_lib_memory_resource
    gabion::memory_resource resource{affinity::data};
    CHECK(!serves(resource));
#endif
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    void *const memory = slots.try_allocate(affinity::nodes, 24);
    CHECK(memory != nullptr && slots.deallocate(memory) == GABION_OK);
    CHECK(slots.handle() == gabion_slots_global() && &slots == &gabion::slots::global());
#ifdef __cpp_lib_memory_resource
    CHECK(serves(resource));
    CHECK(resource.is_equal(gabion::memory_resource{slots, affinity::data}));
#endif
    use();
    // Who moves from them has them, too.
    gabion::slots moved(std::move(slots));
    CHECK(moved.handle() == slots.handle() && slots.handle() != nullptr);
    use();
}

// The slots of the process serve destructors of statics, whichever come first.
struct late {
    ~late() {
        use();
        std::puts("all well");
    }
} late_one;

} // namespace

int main() {
    for (int turn = 0; turn < 40; turn++) {
        fork_beside_a_first_use(10 * turn);
    }
    CHECK(in_child(want_of_memory_passes));
    return 0;
}
