// Piles for C++: a part of gabion.hpp, which includes it.
#ifndef GABION_HPP
#include <gabion.hpp>
#elif !defined(GABION_PILE_HPP)
#define GABION_PILE_HPP

#include <iterator>
#include <string_view>

namespace gabion {

class pile;

// An object of a pile in place, without a copy: its bytes stay where they are and as they are until the view ends,
// whatever is replaced, removed or deleted meanwhile. It keeps the pile, and its file, until then. It can be moved, and
// what was moved away shows nothing.
class view {
  public:
    using value_type = std::byte;
    using const_iterator = const std::byte *;

    // Shows nothing yet; see pile::view.
    GABION_OWN constexpr view() noexcept {}
    GABION_OWN view(view &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    // The same, and ends what this showed before.
    GABION_OWN view &operator=(view &&other) noexcept {
        view taken(std::move(other));
        std::swap(handle_, taken.handle_);
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    view(const view &) = delete;
    view &operator=(const view &) = delete;
    GABION_OWN ~view() { static_cast<void>(gabion_pile_unview(handle_)); }

    // Ends it: it shows nothing from now on.
    GABION_OWN void reset() noexcept { *this = view(); }

    GABION_OWN const std::byte *data() const noexcept { return static_cast<const std::byte *>(data_); }
    GABION_OWN std::size_t size() const noexcept { return size_; }
    GABION_OWN bool empty() const noexcept { return size_ == 0; }
    GABION_OWN const std::byte *begin() const noexcept { return data(); }
    GABION_OWN const std::byte *end() const noexcept { return data() + size_; }
    // The same bytes as text.
    GABION_OWN std::string_view text() const noexcept { return {static_cast<const char *>(data_), size_}; }

  private:
    friend class pile;

    gabion_view *handle_ = nullptr;
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

// Copies of bytes behind 64-bit pointers that are checked at every use; owned. It can be moved; what was moved away is
// none, and every call on it says GABION_BAD_HANDLE, or what there is in nothing. What becomes of a call is its
// gabion_status, but for put, which throws.
class pile {
  public:
    // What put gives: a plain number, never 0. See gabion_pile.
    using pointer = std::uint64_t;
    class iterator;
    using const_iterator = iterator;

    // Makes a pile in memory. max_bytes: the most that it may take; 0 for as much as the process may use. Throws
    // std::bad_alloc.
    GABION_OWN explicit pile(std::uint64_t max_bytes = 0) {
        if (gabion_pile_new(max_bytes, &handle_) != GABION_OK) {
            detail::fail<std::bad_alloc>();
        }
    }
    GABION_OWN pile(pile &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    // The same, and deletes what this was before.
    GABION_OWN pile &operator=(pile &&other) noexcept {
        pile taken(std::move(other));
        std::swap(handle_, taken.handle_);
        return *this;
    }
    pile(const pile &) = delete;
    pile &operator=(const pile &) = delete;

    // Deletes the pile with all that is in it; what lies in a file stays there.
    GABION_OWN ~pile() { static_cast<void>(gabion_pile_delete(handle_)); }

    // For the functions of gabion.h. Stays this object's.
    GABION_OWN gabion_pile *handle() const noexcept { return handle_; }

    // Opens the pile in a file in place of this one, which is deleted then, and kept when the call fails; see
    // gabion_pile_open. flags: GABION_READ_ONLY, GABION_MUST_EXIST, both, or 0.
    GABION_OWN gabion_status open(const char *path, std::uint32_t flags = 0, std::uint64_t max_bytes = 0) noexcept {
        gabion_pile *opened = nullptr;
        const gabion_status status = gabion_pile_open(path, max_bytes, flags, &opened);
        return status == GABION_OK ? gabion_pile_delete(std::exchange(handle_, opened)) : status;
    }

    // Saves the pile, as it is at one moment, in a file of its own, which open opens; see gabion_pile_save.
    GABION_OWN gabion_status save(const char *path) const noexcept { return gabion_pile_save(handle_, path); }

    // Waits until all that was done before is on the disk.
    GABION_OWN gabion_status flush() noexcept { return gabion_pile_flush(handle_); }

    // The pointer that was kept last, or 0.
    GABION_OWN pointer root() const noexcept {
        pointer found = 0;
        static_cast<void>(gabion_pile_root(handle_, &found));
        return found;
    }
    // Keeps a live one, or 0.
    GABION_OWN gabion_status set_root(pointer object) noexcept { return gabion_pile_set_root(handle_, object); }

    // Stores a copy of bytes. reserve: bytes kept free behind it; see gabion_pile_put. Throws std::bad_alloc.
    GABION_OWN pointer put(const void *data, std::size_t length, std::size_t reserve = 0) {
        const pointer object = try_put(data, length, reserve);
        if (object == 0) {
            detail::fail<std::bad_alloc>();
        }
        return object;
    }
    GABION_OWN pointer put(std::string_view bytes) { return put(bytes.data(), bytes.size()); }

    // The same, or returns 0.
    GABION_OWN pointer try_put(const void *data, std::size_t length, std::size_t reserve = 0) noexcept {
        pointer object = 0;
        static_cast<void>(gabion_pile_put(handle_, data, length, reserve, &object));
        return object;
    }
    GABION_OWN pointer try_put(std::string_view bytes) noexcept { return try_put(bytes.data(), bytes.size()); }

    // Copies an object into a string, a vector of bytes, or what has data, size and resize as these have; it has the
    // object's size then, and is as it was when the call fails. Throws what its resize does.
    template <class Bytes> GABION_OWN gabion_status get(pointer object, Bytes &out) const {
        return read(&gabion_pile_get, handle_, object, out);
    }
    // The same into room of the caller's, which may be too small; see gabion_pile_get.
    GABION_OWN gabion_status get(pointer object, void *room, std::size_t capacity, std::size_t &length) const noexcept {
        return gabion_pile_get(handle_, object, room, capacity, &length);
    }

    // As get, and removes the object in one step: of several threads that pop it, one gets it.
    template <class Bytes> GABION_OWN gabion_status pop(pointer object, Bytes &out) {
        return read(&gabion_pile_pop, handle_, object, out);
    }
    GABION_OWN gabion_status pop(pointer object, void *room, std::size_t capacity, std::size_t &length) noexcept {
        return gabion_pile_pop(handle_, object, room, capacity, &length);
    }

    // Shows an object in place, in place of what out showed; see gabion_pile_view.
    GABION_OWN gabion_status view(pointer object, gabion::view &out) const noexcept {
        gabion::view seen;
        const gabion_status status = gabion_pile_view(handle_, object, &seen.data_, &seen.size_, &seen.handle_);
        if (status == GABION_OK) {
            out = std::move(seen);
        }
        return status;
    }

    // Gives an object other bytes; the pointer stays valid.
    GABION_OWN gabion_status replace(pointer object, const void *data, std::size_t length) noexcept {
        return gabion_pile_replace(handle_, object, data, length);
    }
    GABION_OWN gabion_status replace(pointer object, std::string_view bytes) noexcept {
        return replace(object, bytes.data(), bytes.size());
    }

    // Removes an object. Its pointer is refused from now on.
    GABION_OWN gabion_status remove(pointer object) noexcept { return gabion_pile_remove(handle_, object); }

    // Whether a pointer is live.
    GABION_OWN bool contains(pointer object) const noexcept { return gabion_pile_contains(handle_, object); }

    // How long an object is.
    GABION_OWN gabion_status size_of(pointer object, std::size_t &out) const noexcept {
        return gabion_pile_size_of(handle_, object, &out);
    }

    // How many objects there are.
    GABION_OWN std::uint64_t size() const noexcept { return gabion_pile_len(handle_); }
    GABION_OWN bool empty() const noexcept { return size() == 0; }

    // Removes all objects.
    GABION_OWN gabion_status clear() noexcept { return gabion_pile_clear(handle_); }

    // Gives back what is free between objects; see gabion_pile_compact. Returns bytes.
    GABION_OWN std::uint64_t compact() noexcept {
        std::uint64_t bytes = 0;
        static_cast<void>(gabion_pile_compact(handle_, &bytes));
        return bytes;
    }

    // Sets the most that the pile may take; 0 for as much as the process may use.
    GABION_OWN gabion_status set_max_bytes(std::uint64_t max_bytes) noexcept {
        return gabion_pile_set_max_bytes(handle_, max_bytes);
    }

    // The figures; all zero of what is no pile.
    GABION_OWN gabion_pile_figures stats() const noexcept {
        gabion_pile_figures figures{};
        static_cast<void>(gabion_pile_stats(handle_, &figures));
        return figures;
    }

    // Checks the books; see gabion_pile_validate.
    GABION_OWN gabion_status validate() const noexcept { return gabion_pile_validate(handle_); }

    // A walk over the pointers of all objects, in no particular order; see gabion_pile_next. The pile may be used and
    // changed meanwhile, but not moved.
    GABION_OWN iterator begin() const noexcept;
    GABION_OWN iterator end() const noexcept;

  private:
    // Pile is const for some functions.
    template <class Pile, class Bytes>
    GABION_OWN static gabion_status read(gabion_status (*function)(Pile *, std::uint64_t, void *, std::size_t,
                                                                   std::size_t *),
                                         gabion_pile *handle, pointer object, Bytes &out) {
        static_assert(sizeof(*out.data()) == 1, "an object is bytes: read it into a string, or into a vector of bytes");
        const std::size_t before = out.size();
        std::size_t length = 0;
        // Without a place for bytes it is the size alone that is asked for, and no error is noted.
        gabion_status status = function(handle, object, before == 0 ? nullptr : out.data(), before, &length);
        while (status == GABION_TOO_SMALL) {
            // Once more if another thread makes it longer meanwhile.
            out.resize(length);
            status = function(handle, object, out.data(), out.size(), &length);
        }
        out.resize(status == GABION_OK ? length : before);
        return status;
    }

    gabion_pile *handle_ = nullptr;
};

// A place in a walk, for one thread at a time. A copy walks on from the same place.
class pile::iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::uint64_t *;
    using reference = std::uint64_t;

    // The end of any walk.
    GABION_OWN iterator() noexcept {}

    GABION_OWN std::uint64_t operator*() const noexcept { return now_; }
    GABION_OWN iterator &operator++() noexcept {
        if (gabion_pile_next(pile_, &cursor_, &now_) != GABION_OK) {
            now_ = 0;
        }
        return *this;
    }
    GABION_OWN iterator operator++(int) noexcept {
        const iterator before = *this;
        ++*this;
        return before;
    }
    GABION_OWN bool operator==(const iterator &other) const noexcept { return now_ == other.now_; }
    GABION_OWN bool operator!=(const iterator &other) const noexcept { return now_ != other.now_; }

  private:
    friend class pile;
    GABION_OWN explicit iterator(const gabion_pile *pile) noexcept : pile_(pile) { ++*this; }

    const gabion_pile *pile_ = nullptr;
    gabion_pile_cursor cursor_{};
    // 0 at the end.
    std::uint64_t now_ = 0;
};

inline pile::iterator pile::begin() const noexcept { return iterator(handle_); }
inline pile::iterator pile::end() const noexcept { return iterator(); }

} // namespace gabion

#endif
