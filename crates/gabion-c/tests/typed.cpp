// Objects in slots that are named, classes with several bases in slots, and the size of those that hold others.
#include <gabion.hpp>

#include "check.h"

#include <stdexcept>
#include <string>
#include <vector>

using gabion::affinity;

namespace {

struct alignas(16) vec : gabion::in_slots<affinity::nodes, vec> {
    float v[4];
};
struct node : gabion::in_slots<affinity::nodes, node> {
    vec t, b;
    int id;
};
struct bare_vec {
    alignas(16) float v[4];
};
struct bare {
    bare_vec t, b;
    int id;
};
static_assert(sizeof(node) == sizeof(bare), "a base in slots takes no room");

struct drawn : gabion::in_slots<affinity::nodes> {
    virtual ~drawn() = default;
};
struct hit : gabion::in_slots<affinity::physics> {
    virtual ~hit() = default;
};
struct both : drawn, hit {
    GABION_NEWS_OF(drawn);
};

void check_bases() {
    gabion::slots &slots = gabion::slots::global();
    const auto live = [&](affinity kind) { return slots.stats(kind).live_objects; };
    const auto nodes = live(affinity::nodes), physics = live(affinity::physics);
    hit *const one = new both;
    both *const several = new both[3];
    const auto shared = gabion::make_shared<both>();
    CHECK(live(affinity::nodes) == nodes + 3 && live(affinity::physics) == physics);
    delete one;
    delete[] several;
    delete new node;
    CHECK(live(affinity::nodes) == nodes + 1);
}

struct edge {
    int from, to;
    std::string name;
    edge(int first, int last) : from(first), to(last), name("a name that is too long to lie inside of its string") {}
    virtual ~edge() = default;
};
struct weighted : edge {
    double weight = 1;
    using edge::edge;
};
#ifdef __cpp_exceptions
struct refused {
    refused() { throw std::runtime_error("no"); }
};
#endif

void check_made() {
    gabion::slots level;
    affinity edges{};
    CHECK(level.make_affinity("edges", edges, 32, 4) == GABION_OK);
    std::size_t alignment = 0;
    std::uint64_t most = 0;
    CHECK(level.settings(edges, alignment, most) == GABION_OK && alignment == 32 && most == 4);

    edge *const first = gabion::make<weighted>(level, edges, 1, 2);
    CHECK(first->to == 2 && level.owns(first) && reinterpret_cast<std::uintptr_t>(first) % 32 == 0);
    std::unique_ptr<edge, gabion::deleter> second = gabion::make_unique<weighted>(level, edges, 2, 3);
    {
        // By way of a base that does not begin where the object does.
        std::unique_ptr<hit, gabion::deleter> third = gabion::make_unique<both>(level, edges);
        CHECK(static_cast<void *>(third.get()) != dynamic_cast<void *>(third.get()));
        CHECK(level.stats(edges).live_objects == 3);
    }
    CHECK(level.stats(edges).live_objects == 2);
    CHECK(level.stats(edges).live_objects == 2);
    gabion::destroy(level, first);
    gabion::destroy(level, static_cast<edge *>(nullptr));
    second.reset();
    CHECK(level.stats(edges).live_objects == 0);
#ifdef __cpp_exceptions
    bool thrown = false;
    try {
        gabion::make<refused>(level, edges);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown && level.stats(edges).live_objects == 0);
#endif

    using numbers = std::vector<int, gabion::slots_allocator<int>>;
    gabion::slots other;
    numbers in_level(1000, 7, {level, edges}), in_other(10, 8, {other, affinity::data});
    CHECK(level.owns(in_level.data()) && in_level.get_allocator() != in_other.get_allocator());
    in_other = std::move(in_level);
    CHECK(in_other.size() == 1000 && level.owns(in_other.data()));
    const numbers copy(in_other);
    CHECK(level.owns(copy.data()) && copy.get_allocator() == in_other.get_allocator());
    CHECK(other.stats().live_objects == 0);
}

} // namespace

int main() {
    check_bases();
    check_made();
    std::puts("all well");
}
