// gabion.hpp with containers, std::pmr, and classes. Ends with 0, or at the first check that fails.
#include <gabion.hpp>
#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

using gabion::affinity;

// Whether a call throws this. Without exceptions it would end the program, so there it is left alone.
template <class Error, class Act> bool throws(Act act) {
#ifdef __cpp_exceptions
    try {
        act();
    } catch (const Error &) {
        return true;
    }
    return false;
#else
    static_cast<void>(act);
    return true;
#endif
}

std::uint64_t live(affinity kind) { return gabion::slots::global().stats(kind).live_objects; }

struct node : gabion::in_slots<affinity::nodes> {
    std::unique_ptr<node> child[4];
    virtual ~node() = default;
};
struct wide_node : node {
    char more[200];
};
struct left : gabion::in_slots<affinity::nodes> {};
struct right : gabion::in_slots<affinity::nodes> {};
struct both : left, right {};
struct alignas(64) vectors : gabion::in_slots<affinity::physics> {
    float lanes[24];
};
struct alignas(16) pair : gabion::in_slots<affinity::objects> {
    double both[2];
};
struct plain : gabion::in_slots_unsized<affinity::data> {
    int number = 7;
};
struct alignas(4096) plain_page : gabion::in_slots_unsized<affinity::data> {
    char bytes[4096];
};
#ifdef __cpp_exceptions
// Base is one of the two base classes; their heirs' constructors throw.
template <class Base, std::size_t Alignment> struct alignas(Alignment) thrower : Base {
    thrower() { throw std::runtime_error("as planned"); }
    ~thrower() {}
    char bytes[40];
};
template <class Thrower> void check_throwing() {
    const std::uint64_t before = gabion::slots::global().stats().live_objects;
    CHECK(throws<std::runtime_error>([] { delete new Thrower; }));
    CHECK(throws<std::runtime_error>([] { delete new (std::nothrow) Thrower; }));
    CHECK(throws<std::runtime_error>([] { delete[] new Thrower[3]; }));
    CHECK(throws<std::runtime_error>([] { delete[] new (std::nothrow) Thrower[3]; }));
    CHECK(gabion::slots::global().stats().live_objects == before);
}
#endif
struct counted : gabion::in_slots<affinity::objects> {
    static int count;
    counted() { count++; }
    ~counted() { count--; }
    char bytes[3];
};
int counted::count = 0;

std::unique_ptr<node> tree(int levels) {
    std::unique_ptr<node> root(levels % 2 == 0 ? new node : new wide_node);
    for (auto &child : root->child) {
        if (levels > 0) child = tree(levels - 1);
    }
    return root;
}

void check_classes() {
    auto root = tree(5);
    CHECK(live(affinity::nodes) == 1365);
    CHECK(gabion_slots_owns(gabion_slots_global(), root.get()));
    root.reset();
    CHECK(live(affinity::nodes) == 0);

    std::unique_ptr<vectors> aligned(new vectors);
    std::unique_ptr<vectors[]> many(new vectors[5]);
    CHECK(reinterpret_cast<std::uintptr_t>(aligned.get()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(many.get()) % 64 == 0 && live(affinity::physics) == 2);
    aligned.reset();
    many.reset();
    CHECK(live(affinity::physics) == 0);

    std::unique_ptr<pair[]> pairs(new pair[3]);
    CHECK(reinterpret_cast<std::uintptr_t>(pairs.get()) % 16 == 0);
    pairs.reset();
    std::unique_ptr<counted[]> several(new counted[100]);
    CHECK(counted::count == 100);
    several.reset();
    CHECK(counted::count == 0 && live(affinity::objects) == 0);

    delete new plain;
    delete new plain_page;
    delete[] new plain[10];
    delete new (std::nothrow) plain_page;
    CHECK(live(affinity::data) == 0);

    alignas(plain) unsigned char room[sizeof(plain)];
    plain *placed = new (static_cast<void *>(room)) plain;
    CHECK(placed->number == 7 && live(affinity::data) == 0);
    placed->~plain();

#ifdef __cpp_exceptions
    check_throwing<thrower<gabion::in_slots<>, 8>>();
    check_throwing<thrower<gabion::in_slots<>, 128>>();
    check_throwing<thrower<gabion::in_slots_unsized<>, 8>>();
    check_throwing<thrower<gabion::in_slots_unsized<>, 128>>();
#endif
}

void check_shared() {
    struct alignas(64) wide {
        char bytes[64];
    };
    const std::uint64_t objects = live(affinity::objects);
    // What is to be told of: this one is not in slots, though its class says new is.
    auto outside = std::make_shared<node>();
    CHECK(live(affinity::nodes) == 0 && !gabion::slots::global().owns(outside.get()));
    {
        auto one = gabion::make_shared<node>();
        std::shared_ptr<node> heir = gabion::make_shared<wide_node>();
        auto several = gabion::make_shared<vectors>();
        const auto constant = gabion::make_shared<const plain>();
        const auto number = gabion::make_shared<int>(7);
        const auto aligned = gabion::make_shared<wide>();
        const std::weak_ptr<node> weak = one;
        CHECK(live(affinity::nodes) == 2 && live(affinity::physics) == 1 && live(affinity::data) == 1);
        CHECK(live(affinity::objects) == objects + 2 && *number == 7 && constant->number == 7);
        CHECK(gabion::slots::global().owns(one.get()) && gabion::slots::global().owns(heir.get()));
        CHECK(reinterpret_cast<std::uintptr_t>(several.get()) % 64 == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(aligned.get()) % 64 == 0);
        one.reset();
        CHECK(weak.expired() && live(affinity::nodes) == 2);
        const auto twice = gabion::make_shared<both>();
        CHECK(live(affinity::nodes) == 3);
        auto text = gabion::make_shared<std::string>(std::size_t{3}, 'x');
        CHECK(*text == "xxx");
    }
    CHECK(live(affinity::nodes) == 0 && live(affinity::physics) == 0 && live(affinity::data) == 0);
    CHECK(live(affinity::objects) == objects);
#ifdef __cpp_exceptions
    CHECK(throws<std::runtime_error>([] { gabion::make_shared<thrower<gabion::in_slots<>, 8>>(); }));
    CHECK(live(affinity::objects) == objects);
#endif
}

void check_allocator() {
    using string = std::basic_string<char, std::char_traits<char>, gabion::allocator<char, affinity::data>>;
    std::map<int, string, std::less<>, gabion::allocator<std::pair<const int, string>, affinity::nodes>> names;
    for (int number = 0; number < 1000; number++) names.emplace(number, string(static_cast<size_t>(number % 100), 'x'));
    CHECK(live(affinity::nodes) == 1000 && live(affinity::data) > 0 && names.at(99).size() == 99);
    std::vector<double, gabion::allocator<double, affinity::data>> numbers(1000, 1.5), moved;
    moved = std::move(numbers);
    CHECK(moved.back() == 1.5);
    // Not shrink_to_fit, which keeps everything where there are no exceptions.
    decltype(moved)().swap(moved);
    names.clear();
    CHECK(live(affinity::nodes) == 0 && live(affinity::data) == 0);

    gabion::allocator<double> doubles;
    CHECK(doubles == gabion::allocator<int>(doubles) && !(doubles != doubles));
    CHECK(throws<std::bad_alloc>([&] { doubles.deallocate(doubles.allocate(SIZE_MAX / 4), SIZE_MAX / 4); }));
    struct alignas(16) quad {
        float four[4];
    };
    for (size_t count = 1; count < 100; count++) {
        std::vector<quad, gabion::allocator<quad, affinity::nodes>> quads(count);
        CHECK(reinterpret_cast<std::uintptr_t>(quads.data()) % 16 == 0);
    }
    gabion::allocator<quad> some;
    std::vector<quad *> nothing;
    for (int number = 0; number < 10; number++) {
        nothing.push_back(some.allocate(0));
        CHECK(reinterpret_cast<std::uintptr_t>(nothing.back()) % 16 == 0);
    }
    for (quad *none : nothing) some.deallocate(none, 0);
    CHECK(live(affinity::objects) == 0);
    struct alignas(128) line {
        char bytes[128];
    };
    std::vector<line, gabion::allocator<line>> lines(33);
    CHECK(reinterpret_cast<std::uintptr_t>(lines.data()) % 128 == 0);
}

void check_resource() {
    gabion::slots own;
    {
        gabion::memory_resource resource{own, affinity::data}, same{own, affinity::data}, other{own, affinity::nodes};
        CHECK(resource == resource && resource != other && resource != *std::pmr::new_delete_resource());
#ifdef __cpp_rtti
        CHECK(resource == same && gabion::memory_resource() == gabion::memory_resource());
#endif
        std::pmr::unordered_map<int, std::pmr::string> names{&resource};
        std::pmr::list<std::pmr::vector<int>> lists{&other};
        for (int number = 0; number < 1000; number++) {
            names.emplace(number, "a name that is too long to lie inside of its string");
            lists.emplace_back(static_cast<size_t>(number), number);
        }
        CHECK(own.stats(affinity::data).live_objects > 2000 && lists.back().back() == 999);
        std::thread other_thread([&] { names.clear(); });
        other_thread.join();
        void *page = resource.allocate(100, 4096);
        CHECK(reinterpret_cast<std::uintptr_t>(page) % 4096 == 0);
        resource.deallocate(page, 100, 4096);
        for (size_t size = 0; size < 3000; size += 7) {
            for (size_t alignment = 1; alignment < 512; alignment *= 2) {
                // Two: the first slot of a page is aligned to anything.
                void *memory[] = {other.allocate(size, alignment), other.allocate(size, alignment)};
                for (void *one : memory) CHECK(reinterpret_cast<std::uintptr_t>(one) % alignment == 0);
                for (void *one : memory) other.deallocate(one, size, alignment);
            }
        }
    }
    CHECK(own.stats().live_objects == 0);
    CHECK(gabion_slots_validate(own.handle()) == GABION_OK);
}

void check_slots() {
    gabion::slots own, taken{std::move(own)};
    CHECK(own.handle() == nullptr && own.try_allocate(affinity::data, 8) == nullptr);
    own = std::move(taken);
    affinity edges{};
    CHECK(own.make_affinity("edges", edges, 64, 1) == GABION_OK && own.make_affinity("", edges) == GABION_BAD_ARGUMENT);
    CHECK(own.affinities() == 5 && own.name(edges) == "edges" && own.name(affinity::nodes) == "nodes");
    CHECK(own.name(static_cast<affinity>(200)).empty() && taken.name(edges).empty() && taken.affinities() == 0);
    void *one = own.allocate(edges, 40), *two = own.allocate(edges, 40);
    CHECK(reinterpret_cast<std::uintptr_t>(one) % 64 == 0);
    CHECK(own.deallocate(&one) == GABION_FOREIGN);
    const std::string said = gabion_last_error();
    CHECK(own.report().find("edges") != std::string::npos);
    CHECK(!said.empty() && said == gabion_last_error());
    CHECK(own.deallocate(one) == GABION_OK && own.deallocate(one) == GABION_DOUBLE_FREE);
    CHECK(own.deallocate(edges, two, 40) == GABION_OK);
    CHECK(throws<std::bad_alloc>([&] { own.allocate(edges, 5u << 20); }));
    CHECK(own.try_allocate(edges, 5u << 20) == nullptr);
    CHECK(!own.owns(&one) && own.usable_size(&one) == 0 && own.usable_size(nullptr) == 0);
    CHECK(own.validate() == GABION_OK);
    // Larger and smaller, and refused.
    auto *bytes = static_cast<unsigned char *>(own.allocate_zeroed(affinity::data, 100));
    CHECK(own.owns(bytes) && own.usable_size(bytes) >= 100 && bytes[0] == 0 && bytes[99] == 0);
    CHECK(throws<std::bad_alloc>([&] { own.allocate_zeroed(affinity::data, SIZE_MAX / 2); }));
    bytes[99] = 7;
    void *memory = bytes;
    CHECK(own.reallocate(affinity::data, memory, 100000, 64) == GABION_OK && own.usable_size(memory) >= 100000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0 && static_cast<unsigned char *>(memory)[99] == 7);
    void *const there = memory;
    CHECK(own.reallocate(affinity::data, memory, SIZE_MAX / 2) != GABION_OK && memory == there);
    CHECK(own.reallocate(affinity::data, memory, 10) == GABION_OK && own.deallocate(memory) == GABION_OK);
    memory = nullptr;
    CHECK(own.reallocate(affinity::data, memory, 10) == GABION_OK && own.deallocate(memory) == GABION_OK);
    // Another budget and alignment, from the next one on.
    CHECK(own.configure(edges, 16, 3) == GABION_OK && own.configure(edges, 3) == GABION_BAD_ARGUMENT);
    CHECK(own.configure(static_cast<affinity>(200), 16) == GABION_BAD_ARGUMENT);
    void *const large = own.try_allocate(edges, 5u << 20);
    CHECK(large != nullptr && own.deallocate(large) == GABION_OK && own.configure(edges, 64, 1) == GABION_OK);
    // What another thread has freed comes back at once.
    void *const foreign = own.allocate(affinity::nodes, 24);
    std::thread([&] { CHECK(own.deallocate(foreign) == GABION_OK && own.flush() == GABION_OK); }).join();
    CHECK(own.stats(affinity::nodes).live_objects == 0 && taken.flush() == GABION_BAD_HANDLE);
    CHECK(taken.validate() == GABION_BAD_HANDLE && !taken.owns(&one));
    own.allocate(edges, 100);
    CHECK(own.release(edges) > 0 && own.stats(edges).live_objects == 0);
    own.trim();
}

// Slots that end give their memory back; how many blocks all of them hold.
std::uint64_t held() {
    gabion_pool_figures figures{};
    CHECK(gabion_pool_stats(&figures) == GABION_OK);
    return figures.held;
}

void check_moves() {
    auto &process = gabion::slots::global();
    CHECK(process.is_global() && process.deallocate(process.allocate(affinity::data, 8)) == GABION_OK);
    const std::uint64_t before = held();
    {
        // What is moved to takes over, and what it had ends at once.
        gabion::slots one, two;
        one.allocate(affinity::nodes, 24);
        two.allocate(affinity::nodes, 24);
        gabion_slots *const first = one.handle();
        two = std::move(one);
        CHECK(two.handle() == first && one.handle() == nullptr && !one.is_global());
        CHECK(two.stats().live_objects == 1 && held() == before + (4u << 20));
        gabion::slots &same = two;
        two = std::move(same);
        CHECK(two.handle() == first);

        // The slots of the process get another name, and keep their own.
        two = std::move(process);
        CHECK(two.is_global() && two.handle() == gabion_slots_global() && held() == before);
        CHECK(process.is_global() && process.handle() == gabion_slots_global());
        CHECK(process.deallocate(two.allocate(affinity::data, 8)) == GABION_OK);
        gabion::slots three{std::move(two)};
        CHECK(three.is_global() && !two.is_global() && two.handle() == nullptr);
        three = gabion::slots();
        CHECK(!three.is_global() && three.handle() != nullptr && three.handle() != gabion_slots_global());

        // They stay what they are, and what is moved there ends.
        three.allocate(affinity::nodes, 24);
        process = std::move(three);
        CHECK(process.is_global() && process.handle() == gabion_slots_global());
        CHECK(three.handle() == nullptr && held() == before);
        CHECK(three.try_allocate(affinity::nodes, 24) == nullptr);
    }
    CHECK(process.deallocate(process.allocate(affinity::data, 8)) == GABION_OK && held() == before);

    // A resource of nobody's slots is not one of the process's.
    gabion::slots gone, taken{std::move(gone)};
    gabion::memory_resource none{gone, affinity::data}, data{affinity::data};
    const std::uint64_t live_before = live(affinity::data);
    CHECK(throws<std::bad_alloc>([&] { none.deallocate(none.allocate(24), 24); }));
    CHECK(live(affinity::data) == live_before && none != data);
#ifdef __cpp_rtti
    CHECK((data == gabion::memory_resource{process, affinity::data}));
#endif
}

// Destroyed after main has returned, and after everything that was made later.
struct last {
    ~last() {
        gabion::slots &slots = gabion::slots::global();
        CHECK(slots.deallocate(slots.try_allocate(affinity::data, 100)) == GABION_OK);
        CHECK(!slots.report().empty());
    }
} last_of_all;

// Freed after main has returned.
std::vector<char, gabion::allocator<char>> late;
std::unique_ptr<node> late_root;

} // namespace

int main() {
    check_classes();
    check_shared();
    check_allocator();
    check_resource();
    check_slots();
    check_moves();
    late_root = tree(2);
    late.resize(1000, 'x');
    std::puts("all well");
}
