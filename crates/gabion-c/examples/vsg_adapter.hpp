// An allocator interface shaped like VulkanSceneGraph's, met by gabion in about 60 lines. The interface itself is in
// scene_allocator.hpp, a stand-in: replace it by the real one and the names by its names.
//
// What becomes of its parts here:
//   affinities             are gabion's, number by number; further ones are made when they are first used
//   deallocate, size 0     the address says what it is; the size is not needed
//   nested allocator       what the slots do not own goes back to the allocator that was there before
//   setBlockSize           has no effect: blocks are 4 MiB, and an object of any size finds its place
//   totals, report         are added up when asked for: a line of memory for each page in use; large objects count
//   deleteEmptyMemoryBlocks gives memory back to the pool, which keeps it warm or gives it to the system
//   exit                   the slots of the process are never destroyed, so late statics may still free
#pragma once

#include "scene_allocator.hpp"

#include <gabion.hpp>

#include <memory>
#include <new>
#include <string>

class GabionAllocator : public scene::Allocator {
  public:
    explicit GabionAllocator(std::unique_ptr<scene::Allocator> before = {}) : scene::Allocator(std::move(before)) {}

    void *allocate(std::size_t size, scene::Affinity affinity) override {
        return slots().allocate(kind(affinity), size);
    }

    bool deallocate(void *memory, std::size_t size) override {
        if (memory == nullptr || gabion_slots_owns(slots().handle(), memory)) {
            return slots().deallocate(memory) == GABION_OK;
        }
        return nestedAllocator && nestedAllocator->deallocate(memory, size);
    }

    std::size_t deleteEmptyMemoryBlocks() override {
        return slots().trim() + (nestedAllocator ? nestedAllocator->deleteEmptyMemoryBlocks() : 0);
    }

    std::size_t totalAvailableSize() const override { return slots().stats().free_bytes; }
    std::size_t totalReservedSize() const override { return slots().stats().live_bytes; }
    std::size_t totalMemorySize() const override { return slots().stats().mapped_bytes; }
    void setBlockSize(scene::Affinity, std::size_t) override {}

    void report(std::ostream &out) const override {
        out << slots().report();
        if (nestedAllocator) nestedAllocator->report(out);
    }

  private:
    static gabion::slots &slots() noexcept { return gabion::slots::global(); }

    // The scene's first four affinities are gabion's; of the others each gets one of its own, by name.
    static gabion::affinity kind(scene::Affinity affinity) {
        const auto number = static_cast<std::uint32_t>(affinity);
        if (number <= GABION_PHYSICS) return static_cast<gabion::affinity>(number);
        gabion::affinity own{};
        const std::string name = "scene " + std::to_string(number);
        if (slots().make_affinity(name.c_str(), own) != GABION_OK) throw std::bad_alloc();
        return own;
    }
};
