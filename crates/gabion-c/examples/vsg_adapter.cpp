// A scene is built on one allocator, gabion takes over while it lives, and everything goes back to where it came from.
#include "vsg_adapter.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <unordered_map>
#include <vector>

namespace {

// The allocator that was there before: malloc, which remembers what it gave.
class PlainAllocator : public scene::Allocator {
  public:
    ~PlainAllocator() override {
        for (auto &entry : live) std::free(entry.first);
    }
    void *allocate(std::size_t size, scene::Affinity) override {
        void *memory = std::malloc(size);
        live[memory] = size;
        return memory;
    }
    bool deallocate(void *memory, std::size_t) override {
        if (live.erase(memory) == 0) return false;
        std::free(memory);
        return true;
    }
    std::size_t deleteEmptyMemoryBlocks() override { return 0; }
    std::size_t totalAvailableSize() const override { return 0; }
    std::size_t totalReservedSize() const override { return live.size(); }
    std::size_t totalMemorySize() const override { return live.size(); }
    void setBlockSize(scene::Affinity, std::size_t) override {}
    void report(std::ostream &out) const override { out << "before gabion: " << live.size() << " live\n"; }

    std::unordered_map<void *, std::size_t> live;
};

// A class of the scene: new and delete ask whichever allocator is in use; delete does not know the size.
struct Node {
    static void *operator new(std::size_t size) {
        return scene::Allocator::instance()->allocate(size, scene::Affinity::nodes);
    }
    static void operator delete(void *memory) { scene::Allocator::instance()->deallocate(memory); }
    std::vector<std::unique_ptr<Node>> children;
};

std::unique_ptr<Node> tree(int levels) {
    std::unique_ptr<Node> node(new Node);
    for (int child = 0; child < (levels > 0 ? 4 : 0); child++) node->children.push_back(tree(levels - 1));
    return node;
}

void check(bool condition, const char *what) {
    if (condition) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

} // namespace

std::unique_ptr<scene::Allocator> &scene::Allocator::instance() {
    static std::unique_ptr<scene::Allocator> allocator(new PlainAllocator);
    return allocator;
}

int main() {
    using scene::Affinity;
    auto &allocator = scene::Allocator::instance();
    auto *plain = static_cast<PlainAllocator *>(allocator.get());
    auto old = tree(4);
    check(plain->live.size() == 341, "the first scene is the old allocator's");

    allocator.reset(new GabionAllocator(std::move(allocator)));
    auto fresh = tree(6);
    old->children.push_back(tree(2));
    check(plain->live.size() == 341 && gabion::slots::global().stats(gabion::affinity::nodes).live_objects == 5482,
          "the second scene is gabion's");

    void *large = allocator->allocate(20 << 20, Affinity::data);
    void *other = allocator->allocate(100, static_cast<Affinity>(9));
    check(allocator->totalReservedSize() > (20u << 20) + 5482 * sizeof(Node), "large objects count");
    check(allocator->totalMemorySize() >= allocator->totalReservedSize() + allocator->totalAvailableSize(), "the sums");
    allocator->report(std::cout);
    check(allocator->deallocate(large, 20 << 20) && allocator->deallocate(other, 0), "with a size and without");

    int strange = 0;
    check(allocator->deallocate(nullptr, 0) && !allocator->deallocate(&strange, 0), "nothing, and nobody's");
    old.reset();
    fresh.reset();
    check(plain->live.empty() && allocator->totalReservedSize() == 0, "all is freed, each where it came from");
    allocator->setBlockSize(Affinity::nodes, 1 << 20);
    allocator->deleteEmptyMemoryBlocks();
    check(allocator->totalMemorySize() < (16u << 20), "and little is kept");
    std::puts("all well");
}
