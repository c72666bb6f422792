// The header beside macros of the names that Qt and the Windows headers have: as they were defined before, so they are after.
#include <atomic>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#define slots
#define signals public
#define emit
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min(a, b) ((a) < (b) ? (a) : (b))

#include <gabion.hpp>

#include "check.h"

namespace {

struct widget : gabion::in_slots<gabion::affinity::nodes> {
  public slots:
    int shown = 0;
    void show() { emit shown = max(shown, min(1, 2)); }
  signals:
    int hidden = 0;
};

} // namespace

// As a source does that names the class.
#undef slots

int main() {
    std::vector<int, gabion::allocator<int, gabion::affinity::data>> numbers;
    for (int number = 0; number < 1000; number++) {
        numbers.push_back(number);
    }
    gabion::memory_resource resource{gabion::affinity::data};
    std::pmr::string text("longer than what a string holds within itself", &resource);
    widget *const one = new widget;
    one->show();
    CHECK(one->shown == 1 && one->hidden == 0 && numbers.back() == 999 && text.front() == 'l');
    delete one;
    CHECK(gabion::make_shared<widget>()->shown == 0);
    gabion::pile pile;
    CHECK(*pile.begin() == 0 && pile.put("stone") == *pile.begin());
    gabion::slots own;
    void *const memory = own.allocate(gabion::affinity::nodes, 24);
    CHECK(own.deallocate(memory) == GABION_OK);
    std::puts("all well");
}
