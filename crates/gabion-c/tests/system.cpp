// With GABION_SYSTEM: the system serves each object, and what watches it sees what is done wrong with it. The argument
// says what is.
#include <gabion.hpp>

#include "check.h"

#include <cstring>
#include <vector>

using gabion::affinity;

namespace {

struct node : gabion::in_slots<affinity::nodes> {
    long v[8] = {};
};
struct alignas(128) page : gabion::in_slots_unsized<affinity::data> {
    char bytes[128] = {};
};

} // namespace

int main(int count, char **arguments) {
    auto *const one = new node;
    const auto many = std::make_unique<node[]>(10);
    const auto wide = std::make_unique<page>();
    const auto shared = gabion::make_shared<node>();
    const std::vector<char, gabion::allocator<char>> bytes(100);
    gabion::memory_resource resource{affinity::data};
    resource.deallocate(resource.allocate(300, 64), 300, 64);
    CHECK(gabion::slots::global().stats().live_objects == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(wide.get()) % 128 == 0);
    const char *const wrong = count > 1 ? arguments[1] : "";
    volatile long *const seen = one->v;
    if (std::strcmp(wrong, "beyond") == 0) {
        seen[8] = 1;
    }
    delete one;
    if (std::strcmp(wrong, "after") == 0) {
        seen[1] = 1;
    }
    std::puts("all well");
}
