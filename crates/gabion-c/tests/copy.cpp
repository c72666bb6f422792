// A library that contains a copy of gabion. `copies.c` loads two of them.
#include <gabion.hpp>
#include "check.h"

#include <memory_resource>
#include <string>
#include <vector>

using gabion::affinity;

// As in the headers of a library that shows its classes to others.
struct node : gabion::in_slots<affinity::nodes> {
    virtual ~node() = default;
    node *child[4];
};
struct scene {
    gabion::slots own;
    gabion::memory_resource resource{own, affinity::data};
    std::vector<int, gabion::allocator<int, affinity::data>> numbers;
};

static std::uint64_t live() { return gabion::slots::global().stats().live_objects; }

// What comes from this copy goes back to it.
extern "C" void copy_check() {
    gabion_slots *const slots = gabion_slots_global();
    CHECK(gabion::slots::global().handle() == slots && live() == 0);
    node *const one = new node;
    CHECK(gabion_slots_owns(slots, one) && live() == 1);
    delete one;
    CHECK(live() == 0);
    node *const several = new node[3];
    CHECK(gabion_slots_owns(slots, several));
    delete[] several;
    CHECK(live() == 0);
    {
        scene all;
        all.numbers.assign(100, 7);
        CHECK(gabion_slots_owns(slots, all.numbers.data()) && live() == 1);
        std::pmr::string text("a text that is too long to lie inside of its string", &all.resource);
        CHECK(all.own.stats().live_objects == 1 && gabion_slots_owns(all.own.handle(), text.data()));
    }
    gabion::memory_resource resource{gabion::slots::global(), affinity::data};
    void *const memory = resource.allocate(100);
    CHECK(gabion_slots_owns(slots, memory) && live() == 1);
    resource.deallocate(memory, 100);
    CHECK(live() == 0);
    {
        const auto shared = gabion::make_shared<node>();
        CHECK(gabion_slots_owns(slots, shared.get()) && live() == 1);
    }
    CHECK(live() == 0);
    gabion::pile pile;
    gabion::view view;
    gabion::buffer buffer(100);
    CHECK(pile.view(pile.put("stone"), view) == GABION_OK && view.text() == "stone");
    CHECK(pile.begin() != pile.end() && pile.contains(*pile.begin()) && buffer.capacity() >= 100);
}

extern "C" gabion_slots *copy_slots() { return gabion_slots_global(); }

// A pile of this copy.
extern "C" gabion_pile *copy_pile() {
    gabion_pile *pile = nullptr;
    CHECK(gabion_pile_new(0, &pile) == GABION_OK);
    return pile;
}

// What this copy says to a handle.
extern "C" gabion_status copy_use_slots(gabion_slots *slots) {
    void *memory = nullptr;
    const gabion_status status = gabion_slots_alloc(slots, GABION_NODES, 24, 0, &memory);
    return status == GABION_OK ? gabion_slots_free_sized(slots, GABION_NODES, memory, 24, 0) : status;
}
extern "C" gabion_status copy_use_pile(gabion_pile *pile) {
    std::uint64_t pointer = 0;
    return gabion_pile_put(pile, "stone", 5, 0, &pointer);
}
