// gabion.hpp's piles, views and buffers. Ends with 0, or at the first check that fails.
#include <gabion_pile.hpp>
#include "check.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

// Whether a call throws std::bad_alloc. Without exceptions it would end the program, so there it is left alone.
template <class Act> bool throws(Act act) {
#ifdef __cpp_exceptions
    try {
        act();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
#else
    static_cast<void>(act);
    return true;
#endif
}

#ifdef __cpp_lib_ranges
static_assert(std::input_iterator<gabion::pile::iterator>);
#endif

gabion_pool_figures pool() {
    gabion_pool_figures figures{};
    CHECK(gabion_pool_stats(&figures) == GABION_OK);
    return figures;
}

void check_objects() {
    gabion::pile pile;
    std::string text = "before", again;
    std::vector<std::byte> bytes(3);
    const auto stone = pile.put("stone"), empty = pile.put(""), wall = pile.put(std::string(100000, 'w'));
    const auto grown = pile.put("sand", 4, 100), two = pile.try_put("two"), none = pile.try_put(nullptr, 3);
    CHECK(stone != 0 && two != 0 && none == 0 && pile.size() == 5 && !pile.empty() && pile.contains(stone));
    CHECK(throws([&] { pile.put(nullptr, 3); }));
    // Into what is larger, smaller and empty.
    CHECK(pile.get(stone, text) == GABION_OK && text == "stone");
    CHECK(pile.get(stone, again) == GABION_OK && again == "stone");
    CHECK(pile.get(wall, bytes) == GABION_OK && bytes.size() == 100000 && bytes[99999] == std::byte{'w'});
    CHECK(pile.get(empty, text) == GABION_OK && text.empty() && pile.get(empty, text) == GABION_OK);
    std::size_t length = 0;
    char room[4];
    CHECK(pile.get(stone, room, sizeof room, length) == GABION_TOO_SMALL && length == 5);
    CHECK(pile.pop(stone, room, sizeof room, length) == GABION_TOO_SMALL && pile.contains(stone));
    CHECK(pile.get(two, room, sizeof room, length) == GABION_OK && length == 3 && std::memcmp(room, "two", 3) == 0);
    CHECK(pile.pop(two, room, sizeof room, length) == GABION_OK && length == 3 && !pile.contains(two));
    CHECK(pile.replace(grown, "more sand than before") == GABION_OK && pile.size_of(grown, length) == GABION_OK);
    CHECK(length == 21 && pile.replace(grown, text.data(), 0) == GABION_OK);
    CHECK(pile.pop(grown, bytes) == GABION_OK && bytes.empty());
    CHECK(pile.pop(stone, again) == GABION_OK && again == "stone");
    // What fails changes nothing.
    text = "as it was";
    CHECK(pile.get(stone, text) == GABION_BAD_POINTER && pile.pop(stone, text) == GABION_BAD_POINTER);
    CHECK(text == "as it was" && pile.replace(stone, "x") == GABION_BAD_POINTER);
    CHECK(pile.remove(stone) == GABION_BAD_POINTER && pile.size_of(stone, length) == GABION_BAD_POINTER);
    CHECK(pile.remove(empty) == GABION_OK && pile.size() == 1 && pile.validate() == GABION_OK);
    CHECK(pile.stats().objects == 1 && pile.stats().used_bytes == 100000);
    CHECK(pile.clear() == GABION_OK && pile.empty() && pile.compact() > 0 && pile.stats().reserved_bytes == 0);
    CHECK(pile.set_max_bytes(1) == GABION_OK && pile.stats().max_bytes == 1);
    CHECK(pile.try_put("x") == 0 && throws([&] { pile.put("x"); }));
    gabion::pile tight(1 << 20);
    CHECK(tight.stats().max_bytes == 1 << 20);
}

void check_moves() {
    gabion::pile one, two;
    const auto stone = one.put("stone");
    gabion_pile *const handle = one.handle();
    two = std::move(one);
    CHECK(two.handle() == handle && two.contains(stone) && one.handle() == nullptr);
    gabion::pile &same = two;
    two = std::move(same);
    gabion::pile three(std::move(two));
    CHECK(three.handle() == handle && three.contains(stone));
    // What is no pile any more.
    std::string text;
    gabion::view view;
    CHECK(two.size() == 0 && two.begin() == two.end() && two.try_put("x") == 0 && two.root() == 0);
    CHECK(two.get(stone, text) == GABION_BAD_HANDLE && two.view(stone, view) == GABION_BAD_HANDLE);
    CHECK(two.stats().objects == 0 && two.validate() == GABION_BAD_HANDLE && two.compact() == 0);
    two = gabion::pile();
    CHECK(two.put("x") != 0);
}

void check_walk() {
    gabion::pile pile;
    const gabion::pile &constant = pile;
    CHECK(pile.begin() == pile.end());
    std::set<gabion::pile::pointer> stored;
    for (int number = 0; number < 10000; number++) stored.insert(pile.put(&number, sizeof number));
    std::size_t met = 0;
    for (const auto pointer : constant) met += stored.count(pointer);
    CHECK(met == stored.size() && std::set<gabion::pile::pointer>(pile.begin(), pile.end()) == stored);
    auto at = pile.begin();
    const auto first = *at, before = *at++;
    CHECK(first == before && *at != first && at != pile.begin() && at != pile.end());
    // What is met may be removed on the way.
    for (const auto pointer : pile) CHECK(pile.remove(pointer) == GABION_OK);
    CHECK(pile.empty() && pile.begin() == pile.end());
}

void check_views() {
    gabion::view none, view;
    CHECK(none.empty() && none.size() == 0 && none.data() == nullptr && none.begin() == none.end());
    CHECK(none.text().empty());
    {
        gabion::pile pile;
        const auto stone = pile.put("stone"), large = pile.put(std::string(3 << 20, 'l'));
        CHECK(pile.view(stone, view) == GABION_OK && view.text() == "stone" && view.size() == 5 && !view.empty());
        CHECK(pile.replace(stone, "sand") == GABION_OK && view.text() == "stone");
        gabion::view other;
        CHECK(pile.view(stone, other) == GABION_OK && other.text() == "sand");
        CHECK(pile.remove(stone) == GABION_OK && pile.view(stone, other) == GABION_BAD_POINTER);
        CHECK(other.text() == "sand");
        CHECK(pile.view(large, other) == GABION_OK && other.size() == 3 << 20);
        CHECK(std::count(other.begin(), other.end(), std::byte{'l'}) == 3 << 20);
        gabion::view moved(std::move(other));
        CHECK(other.empty() && moved.size() == 3 << 20);
        gabion::view &same = moved;
        moved = std::move(same);
        CHECK(moved.size() == 3 << 20);
        moved.reset();
        CHECK(moved.empty() && moved.data() == nullptr && pile.validate() == GABION_OK);
    }
    // The pile is there as long as its views are; any thread may end one.
    CHECK(view.text() == "stone");
    std::thread([&] { view.reset(); }).join();
    CHECK(view.empty());
}

void check_files() {
    const std::string path = "/tmp/gabion-cpp-" + std::to_string(getpid()) + ".pile";
    std::string text;
    gabion::pile::pointer stone = 0;
    {
        gabion::pile pile;
        stone = pile.put("stone");
        CHECK(pile.root() == 0 && pile.set_root(stone) == GABION_OK && pile.root() == stone);
        CHECK(pile.set_root(stone + 1) == GABION_BAD_POINTER && pile.flush() == GABION_OK);
        CHECK(pile.open(path.c_str(), GABION_MUST_EXIST) == GABION_FILE && pile.contains(stone));
        CHECK(pile.save(path.c_str()) == GABION_OK && pile.save("/") == GABION_FILE);
    }
    gabion::pile pile, again;
    CHECK(pile.open(path.c_str(), GABION_MUST_EXIST) == GABION_OK && pile.root() == stone);
    CHECK(pile.get(stone, text) == GABION_OK && text == "stone" && *pile.begin() == stone);
    CHECK(again.open(path.c_str()) == GABION_IN_USE && pile.put("sand") != 0 && pile.flush() == GABION_OK);
    // What was opened before is closed for others to open.
    CHECK(pile.open((path + "2").c_str()) == GABION_OK && pile.empty());
    CHECK(again.open(path.c_str(), GABION_READ_ONLY, 1 << 20) == GABION_OK && again.size() == 2);
    std::remove(path.c_str());
    std::remove((path + "2").c_str());
}

void check_buffers() {
    const std::uint64_t before = pool().live;
    {
        gabion::buffer none, one(5 << 20, GABION_CLEAN);
        CHECK(none.data() == nullptr && none.size() == 0 && none.empty() && none.capacity() == 0);
        CHECK(none.begin() == none.end() && none.reset() == GABION_OK && none.release() == nullptr);
        CHECK(one.size() == 5 << 20 && one.capacity() >= one.size() && !one.empty());
        CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 64 == 0 && pool().live == before + 1);
        CHECK(std::all_of(one.begin(), one.end(), [](std::byte byte) { return byte == std::byte{0}; }));
        std::fill(one.begin(), one.end(), std::byte{7});
        std::byte *const at = one.data();
        gabion::buffer two(std::move(one)), three(100);
        const gabion::buffer &constant = two;
        CHECK(one.data() == nullptr && one.empty() && two.data() == at && constant.data() == at);
        CHECK(constant.end() - constant.begin() == 5 << 20 && *(constant.end() - 1) == std::byte{7});
        three = std::move(two);
        gabion::buffer &same = three;
        three = std::move(same);
        CHECK(three.data() == at && two.empty() && pool().live == before + 1);
        // Another in its place; what cannot be had changes nothing.
        CHECK(three.rent(SIZE_MAX / 2) != GABION_OK && three.data() == at && three.size() == 5 << 20);
        CHECK(three.rent(1000) == GABION_OK && three.size() == 1000 && pool().live == before + 1);
        CHECK(three.rent_wait(2000, 10, GABION_CLEAN) == GABION_OK && three.size() == 2000);
        CHECK(three.rent(10, 8) == GABION_BAD_ARGUMENT && three.size() == 2000);
        CHECK(throws([] { gabion::buffer much(SIZE_MAX / 2); }));
        void *const mine = three.release();
        CHECK(mine != nullptr && three.data() == nullptr && three.empty() && pool().live == before + 1);
        CHECK(gabion_return(mine) == GABION_OK);
        CHECK(three.rent(1000) == GABION_OK && three.reset() == GABION_OK && three.empty());
        CHECK(three.rent(1000) == GABION_OK);
    }
    CHECK(pool().live == before);
}

} // namespace

int main() {
    check_objects();
    check_moves();
    check_walk();
    check_views();
    check_files();
    check_buffers();
    std::puts("all well");
}
