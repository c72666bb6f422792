// A stand-in for a scene graph's allocator interface: what the example needs, and nothing of any engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>

namespace scene {

enum class Affinity : std::uint32_t { objects, data, nodes, physics, last };

class Allocator {
  public:
    explicit Allocator(std::unique_ptr<Allocator> before = {}) : nestedAllocator(std::move(before)) {}
    virtual ~Allocator() = default;

    // The allocator in use. To swap it, give the old one to the new one: what is live still belongs to it.
    static std::unique_ptr<Allocator> &instance();

    virtual void *allocate(std::size_t size, Affinity affinity = Affinity::objects) = 0;
    // False when the memory is not known. A size of 0 says that it is not known, either.
    virtual bool deallocate(void *memory, std::size_t size = 0) = 0;

    virtual std::size_t deleteEmptyMemoryBlocks() = 0;
    virtual std::size_t totalAvailableSize() const = 0;
    virtual std::size_t totalReservedSize() const = 0;
    virtual std::size_t totalMemorySize() const = 0;
    virtual void setBlockSize(Affinity affinity, std::size_t bytes) = 0;
    virtual void report(std::ostream &out) const = 0;

  protected:
    std::unique_ptr<Allocator> nestedAllocator;
};

} // namespace scene
