// Warm memory of the pool for C++: a part of gabion.hpp, which includes it.
#ifndef GABION_HPP
#include <gabion.hpp>
#elif !defined(GABION_POOL_HPP)
#define GABION_POOL_HPP

namespace gabion {

// Memory that the pool lends, for pixels and arrays: contiguous, aligned to 64 at least, and given back at the end. Its
// bytes are whatever an earlier user left, unless GABION_CLEAN asks for zeros. It can be moved, and what was moved away
// has none.
class buffer {
  public:
    using value_type = std::byte;
    using iterator = std::byte *;
    using const_iterator = const std::byte *;

    // Nothing yet.
    GABION_OWN constexpr buffer() noexcept {}
    // That many bytes; see gabion_rent. Throws std::bad_alloc.
    GABION_OWN explicit buffer(std::size_t bytes, std::uint32_t flags = 0) {
        if (rent(bytes, flags) != GABION_OK) {
            detail::fail<std::bad_alloc>();
        }
    }

    GABION_OWN buffer(buffer &&other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    // The same, and gives back what this had before.
    GABION_OWN buffer &operator=(buffer &&other) noexcept {
        buffer taken(std::move(other));
        std::swap(memory_, taken.memory_);
        std::swap(size_, taken.size_);
        return *this;
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    GABION_OWN ~buffer() { static_cast<void>(gabion_return(memory_)); }

    // Lends that many bytes in place of what this has, which goes back when they are there, and is kept when the call
    // fails.
    GABION_OWN gabion_status rent(std::size_t bytes, std::uint32_t flags = 0) noexcept {
        void *memory = nullptr;
        const gabion_status status = gabion_rent(bytes, flags, &memory);
        return status == GABION_OK ? take(memory, bytes) : status;
    }

    // The same, and waits for room below the pool's total limit; see gabion_rent_wait.
    GABION_OWN gabion_status rent_wait(std::size_t bytes, std::uint64_t milliseconds,
                                       std::uint32_t flags = 0) noexcept {
        void *memory = nullptr;
        const gabion_status status = gabion_rent_wait(bytes, flags, milliseconds, &memory);
        return status == GABION_OK ? take(memory, bytes) : status;
    }

    // Gives back what this has, if anything.
    GABION_OWN gabion_status reset() noexcept { return take(nullptr, 0); }

    // Leaves the memory to the caller, who gives it back by gabion_return. nullptr when there is none.
    GABION_OWN void *release() noexcept {
        size_ = 0;
        return std::exchange(memory_, nullptr);
    }

    // nullptr when there is none.
    GABION_OWN std::byte *data() noexcept { return static_cast<std::byte *>(memory_); }
    GABION_OWN const std::byte *data() const noexcept { return static_cast<const std::byte *>(memory_); }
    // The bytes that were asked for.
    GABION_OWN std::size_t size() const noexcept { return size_; }
    GABION_OWN bool empty() const noexcept { return size_ == 0; }
    // The bytes that may be used: no fewer.
    GABION_OWN std::size_t capacity() const noexcept { return gabion_rented_size(memory_); }

    GABION_OWN std::byte *begin() noexcept { return data(); }
    GABION_OWN std::byte *end() noexcept { return data() + size_; }
    GABION_OWN const std::byte *begin() const noexcept { return data(); }
    GABION_OWN const std::byte *end() const noexcept { return data() + size_; }

  private:
    // Has this from now on. What becomes of what it had.
    GABION_OWN gabion_status take(void *memory, std::size_t size) noexcept {
        size_ = size;
        return gabion_return(std::exchange(memory_, memory));
    }

    void *memory_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace gabion

#endif
