// One program of two parts: this source with exceptions and types at run time, and once more without. Each part keeps to its own
// way, whichever of them the linker sees first.
#include <gabion.hpp>
#include "check.h"

#include <cstdio>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

using gabion::affinity;

using numbers = std::vector<int, gabion::allocator<int, affinity::data>>;

struct node : gabion::in_slots<affinity::nodes> {
    char bytes[64];
};
struct plain : gabion::in_slots_unsized<affinity::nodes> {
    char bytes[64];
};

// The part without: uses of all that may throw. Its parameters have one name in both parts.
void use_without(gabion::slots &slots, affinity kind, std::pmr::memory_resource &resource, numbers &filled);

#ifndef __cpp_exceptions

void use_without(gabion::slots &slots, affinity kind, std::pmr::memory_resource &resource, numbers &filled) {
    gabion::slots own;
    CHECK(own.deallocate(own.allocate(kind, 24)) == GABION_OK);
    CHECK(slots.handle() == gabion_slots_global() && slots.deallocate(slots.allocate(kind, 24)) == GABION_OK);
    delete new node;
    delete[] new node[3];
    delete new plain;
    delete[] new plain[3];
    gabion::allocator<int> ints;
    ints.deallocate(ints.allocate(10), 10);
    gabion::memory_resource same{slots, kind};
    same.deallocate(same.allocate(100), 100);
    resource.deallocate(resource.allocate(100), 100);
    CHECK(same.is_equal(same) && !same.is_equal(resource));
    CHECK(filled.size() == 100 && filled[99] == 7);
    gabion::pile pile;
    gabion::buffer buffer(100);
    std::string text;
    CHECK(pile.get(pile.put("stone"), text) == GABION_OK && text == "stone" && buffer.size() == 100);
    CHECK(gabion::make_shared<node>() != nullptr);
}

#else

// More than any machine has.
constexpr std::size_t too_much = std::size_t{1} << 50;

template <class Act> bool throws(Act act) {
    try {
        act();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

int main() {
    auto &slots = gabion::slots::global();
    gabion::memory_resource resource{affinity::data};
    use_without(slots, affinity::data, resource, *std::make_unique<numbers>(100, 7));
    CHECK(throws([&] { slots.allocate(affinity::data, too_much); }));
    CHECK(throws([] { delete[] new node[too_much / 64]; }));
    CHECK(throws([] { delete[] new plain[too_much / 64]; }));
    CHECK(throws([] { gabion::allocator<int>().allocate(too_much); }));
    CHECK(throws([&] { resource.deallocate(resource.allocate(too_much), too_much); }));
    CHECK(resource == gabion::memory_resource{affinity::data});
    gabion::pile pile(1);
    CHECK(throws([&] { pile.put("stone"); }) && throws([] { gabion::buffer buffer(too_much); }));
    CHECK(slots.stats().live_objects == 0);
    std::puts("all well");
}

#endif
