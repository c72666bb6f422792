// gabion for C++17, on top of gabion.h: nothing to link but the library itself.
//
//     struct node : gabion::in_slots<gabion::affinity::nodes> { node *child[4]; };      // new and delete use slots
//     auto shared = gabion::make_shared<node>();                       // and this, which std::make_shared does not
//     std::vector<int, gabion::allocator<int, gabion::affinity::data>> numbers;         // and so does a container
//     gabion::memory_resource resource{gabion::affinity::data};                         // and std::pmr
//     std::pmr::unordered_map<int, std::pmr::string> names{&resource};
//
// Piles and the pool's buffers are classes as well: gabion::pile, gabion::view and gabion::buffer, in gabion_pile.hpp
// and gabion_pool.hpp, which this header includes; and gabion_slots.hpp makes objects in slots that are named.
//
// Exceptions are thrown only where C++ asks for them: std::bad_alloc by what allocates. Deallocation and destructors
// never throw; what is wrong with a free is told by the checked build of the library and by gabion_last_error().
// Compiles with -fno-exceptions, where what would throw calls std::abort() (the try_ functions and new (std::nothrow)
// return nullptr as ever), and with -fno-rtti, where a memory_resource equals itself only. Parts of one program may
// differ in both; a memory_resource goes from one such part to another as a std::pmr::memory_resource. Everything may
// be used from any thread, as in gabion.h.
//
// Sanitizers and valgrind see nothing inside of slots. With GABION_SYSTEM defined in all of a program, what is
// allocated in the slots of the process without naming them (new, make_shared, allocator, memory_resource) comes from
// the system.
#ifndef GABION_HPP
#define GABION_HPP

#include <gabion.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#if __has_include(<memory_resource>)
#include <memory_resource>
#endif

// Qt has a macro of this name, which is the user's again at the end of this header. Where it is defined,
// `gabion::slots` cannot be written: see docs/c.md. All else works.
#pragma push_macro("slots")
#undef slots

// Functions and variables of this header are each library's own (hidden): of two libraries that each contain a copy of
// gabion, each finds its own copy. Not so the types, or all classes with one of them as a base or a member would have
// to be hidden, too. What ends the program where it cannot throw has another name than what throws, because of two
// functions of one name the linker keeps either.
#if !defined(__GNUC__) || defined(_WIN32)
#define GABION_OWN
#elif defined(__cpp_exceptions)
#define GABION_OWN __attribute__((visibility("hidden")))
#else
#define GABION_OWN __attribute__((visibility("hidden"), abi_tag("no_exceptions")))
#endif

// The same for a class whose functions are found by a table: a name for each choice of the two features.
#if !defined(__GNUC__) || (defined(__cpp_exceptions) && defined(__cpp_rtti))
#define GABION_OWN_CLASS
#elif defined(__cpp_exceptions)
#define GABION_OWN_CLASS __attribute__((abi_tag("no_rtti")))
#elif defined(__cpp_rtti)
#define GABION_OWN_CLASS __attribute__((abi_tag("no_exceptions")))
#else
#define GABION_OWN_CLASS __attribute__((abi_tag("no_exceptions", "no_rtti")))
#endif

namespace gabion {

// The kinds that objects are packed by. slots::make_affinity makes more.
enum class affinity : std::uint32_t {
    objects = GABION_OBJECTS,
    data = GABION_DATA,
    nodes = GABION_NODES,
    physics = GABION_PHYSICS,
};

namespace detail {

// Throws, or ends the program where nothing can be thrown.
template <class Error> [[noreturn]] GABION_OWN inline void fail() {
#ifdef __cpp_exceptions
    throw Error();
#else
    std::abort();
#endif
}

// The slots of the process, once they were found. No static of a function: its guard would be held for ever in a child
// that is forked while another thread is at its first use.
GABION_OWN inline std::atomic<gabion_slots *> found{nullptr};

// The slots of the process; nullptr as long as there is no memory for them.
GABION_OWN inline gabion_slots *find_global() noexcept {
    gabion_slots *const handle = gabion_slots_global();
    if (handle != nullptr) {
        // Release: whoever finds the handle finds what is behind it. It is the same for every thread.
        found.store(handle, std::memory_order_release);
    }
    return handle;
}

// The same, looked up once.
GABION_OWN inline gabion_slots *global() noexcept {
    gabion_slots *const handle = found.load(std::memory_order_acquire);
    return handle != nullptr ? handle : find_global();
}

GABION_OWN inline void *allocate(gabion_slots *slots, affinity kind, std::size_t size, std::size_t alignment) {
    void *memory = nullptr;
    if (gabion_slots_alloc(slots, static_cast<std::uint32_t>(kind), size, alignment, &memory) != GABION_OK) {
        fail<std::bad_alloc>();
    }
    return memory;
}

GABION_OWN inline void *try_allocate(gabion_slots *slots, affinity kind, std::size_t size,
                                     std::size_t alignment) noexcept {
    void *memory = nullptr;
    return gabion_slots_alloc(slots, static_cast<std::uint32_t>(kind), size, alignment, &memory) == GABION_OK ? memory
                                                                                                              : nullptr;
}

GABION_OWN inline void deallocate(gabion_slots *slots, affinity kind, void *memory, std::size_t size,
                                  std::size_t alignment) noexcept {
    static_cast<void>(gabion_slots_free_sized(slots, static_cast<std::uint32_t>(kind), memory, size, alignment));
}

// What the classes, the allocator and the resource below get from the slots of the process. With GABION_SYSTEM defined
// the system serves instead, so that a sanitizer or valgrind sees each object.
#ifdef GABION_SYSTEM
GABION_OWN inline void *try_object(affinity, std::size_t size, std::size_t alignment) noexcept {
    // As much as any affinity may be set to. The size is kept: what lies behind it is not the object's.
    constexpr std::size_t most = 64;
    void *memory = nullptr;
    return posix_memalign(&memory, alignment > most ? alignment : most, size) == 0 ? memory : nullptr;
}

GABION_OWN inline void *object(affinity kind, std::size_t size, std::size_t alignment) {
    void *const memory = try_object(kind, size, alignment);
    if (memory == nullptr) {
        fail<std::bad_alloc>();
    }
    return memory;
}

GABION_OWN inline void end(affinity, void *memory, std::size_t, std::size_t) noexcept { std::free(memory); }

GABION_OWN inline void undo(void *memory) noexcept { std::free(memory); }
#else
GABION_OWN inline void *try_object(affinity kind, std::size_t size, std::size_t alignment) noexcept {
    return try_allocate(global(), kind, size, alignment);
}

GABION_OWN inline void *object(affinity kind, std::size_t size, std::size_t alignment) {
    return allocate(global(), kind, size, alignment);
}

GABION_OWN inline void end(affinity kind, void *memory, std::size_t size, std::size_t alignment) noexcept {
    deallocate(global(), kind, memory, size, alignment);
}

GABION_OWN inline void undo(void *memory) noexcept { static_cast<void>(gabion_slots_free(global(), memory)); }
#endif

// What new asks for with a size alone: the affinity's own alignment, and 16 wherever the size is a multiple of 16.
inline constexpr std::size_t natural = 0;

// The alignment to ask for: the natural one where that is enough, because it is served faster. Every object is aligned
// to 8, and one whose size is a multiple of 16 to 16; but no bytes are served as one is.
GABION_OWN constexpr std::size_t asked(std::size_t size, std::size_t alignment) noexcept {
    return alignment <= 8 || (alignment == 16 && size % 16 == 0 && size != 0) ? natural : alignment;
}

} // namespace detail

// Slots of one's own, owned; or the slots of the process, which are never deleted.
class slots {
  public:
    // Makes slots. They must outlive what is allocated in them. Throws std::bad_alloc.
    GABION_OWN slots() {
        if (gabion_slots_new(&handle_) != GABION_OK) {
            detail::fail<std::bad_alloc>();
        }
    }

    // The slots of the process. Never destroyed, so that the destructors of other statics may use them. Where there was
    // no memory for them, each call tries again.
    GABION_OWN static slots &global() noexcept;

    // Takes the slots over. Those of the process get one more name by this.
    GABION_OWN slots(slots &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), of_process_(other.of_process_) {
        other.of_process_ = other.fixed_;
    }
    // The same, and gives back what this had before. What global() gives stays what it is: slots that are moved there
    // end.
    GABION_OWN slots &operator=(slots &&other) noexcept {
        slots taken(std::move(other));
        if (!fixed_) {
            std::swap(handle_, taken.handle_);
            std::swap(of_process_, taken.of_process_);
        }
        return *this;
    }
    slots(const slots &) = delete;
    slots &operator=(const slots &) = delete;

    // Gives back all memory; what is still allocated is gone. The slots of the process stay.
    GABION_OWN ~slots() { static_cast<void>(gabion_slots_delete(handle_)); }

    // For the functions of gabion.h. Stays this object's.
    GABION_OWN gabion_slots *handle() const noexcept { return of_process_ ? detail::global() : handle_; }

    // Whether these are the slots of the process, by whatever name.
    GABION_OWN bool is_global() const noexcept { return of_process_; }

    // Makes or finds an affinity; see gabion_slots_affinity.
    GABION_OWN gabion_status make_affinity(const char *name, affinity &out, std::size_t alignment = 0,
                                           std::uint64_t max_blocks = GABION_NO_LIMIT) noexcept {
        std::uint32_t number = 0;
        const gabion_status status = gabion_slots_affinity(handle(), name, alignment, max_blocks, &number);
        if (status == GABION_OK) {
            out = static_cast<affinity>(number);
        }
        return status;
    }

    // How many affinities there are: their numbers are 0 up to that.
    GABION_OWN std::uint32_t affinities() const noexcept { return gabion_slots_affinities(handle()); }

    // An affinity's name; empty when there is none of that number.
    GABION_OWN std::string name(affinity kind) const {
        const auto number = static_cast<std::uint32_t>(kind);
        std::string text;
        std::size_t needed = 0;
        if (gabion_slots_affinity_name(handle(), number, nullptr, 0, &needed) == GABION_TOO_SMALL) {
            text.resize(needed);
            static_cast<void>(gabion_slots_affinity_name(handle(), number, text.data(), needed, nullptr));
            text.pop_back();
        }
        return text;
    }

    // Gives an affinity another alignment and budget, for what is allocated from now on.
    GABION_OWN gabion_status configure(affinity kind, std::size_t alignment,
                                       std::uint64_t max_blocks = GABION_NO_LIMIT) noexcept {
        return gabion_slots_configure(handle(), static_cast<std::uint32_t>(kind), alignment, max_blocks);
    }

    // Allocates. Throws std::bad_alloc.
    GABION_OWN void *allocate(affinity kind, std::size_t size, std::size_t alignment = 0) {
        return detail::allocate(handle(), kind, size, alignment);
    }

    // The same, and all bytes are zero. Throws std::bad_alloc.
    GABION_OWN void *allocate_zeroed(affinity kind, std::size_t size, std::size_t alignment = 0) {
        void *memory = nullptr;
        const auto number = static_cast<std::uint32_t>(kind);
        if (gabion_slots_alloc_zeroed(handle(), number, size, alignment, &memory) != GABION_OK) {
            detail::fail<std::bad_alloc>();
        }
        return memory;
    }

    // Allocates, or returns nullptr.
    GABION_OWN void *try_allocate(affinity kind, std::size_t size, std::size_t alignment = 0) noexcept {
        return detail::try_allocate(handle(), kind, size, alignment);
    }

    // Frees what was allocated here.
    GABION_OWN gabion_status deallocate(void *memory) noexcept { return gabion_slots_free(handle(), memory); }

    // The same, a little faster, for whoever knows what was asked for. WARNING: memory that is not of these slots is
    // found by the checked build alone; see gabion_slots_free_sized.
    GABION_OWN gabion_status deallocate(affinity kind, void *memory, std::size_t size,
                                        std::size_t alignment = 0) noexcept {
        return gabion_slots_free_sized(handle(), static_cast<std::uint32_t>(kind), memory, size, alignment);
    }

    // Gives what was allocated here another size; see gabion_slots_realloc. It may move, its bytes as they are: memory
    // is where it lies then, and as it was when the call fails. nullptr is allocated.
    GABION_OWN gabion_status reallocate(affinity kind, void *&memory, std::size_t size,
                                        std::size_t alignment = 0) noexcept {
        return gabion_slots_realloc(handle(), static_cast<std::uint32_t>(kind), memory, size, alignment, &memory);
    }

    // How many bytes of what was allocated here may be used. 0 for nullptr, and for what is not of these slots.
    GABION_OWN std::size_t usable_size(const void *memory) const noexcept {
        return gabion_slots_usable_size(handle(), memory);
    }

    // Whether an address, which may be any, lies in memory of these slots.
    GABION_OWN bool owns(const void *address) const noexcept { return gabion_slots_owns(handle(), address); }

    // Frees everything of one affinity; see gabion_slots_release. Returns bytes. Nothing may delete any of it
    // afterwards: no std::unique_ptr, no container.
    GABION_OWN std::uint64_t release(affinity kind) noexcept {
        std::uint64_t bytes = 0;
        static_cast<void>(gabion_slots_release(handle(), static_cast<std::uint32_t>(kind), &bytes));
        return bytes;
    }

    // Sends what this thread has freed of other threads' objects on its way; see gabion_slots_flush.
    GABION_OWN gabion_status flush() noexcept { return gabion_slots_flush(handle()); }

    // An affinity's alignment and budget; see gabion_slots_settings.
    GABION_OWN gabion_status settings(affinity kind, std::size_t &alignment, std::uint64_t &max_blocks) const noexcept {
        return gabion_slots_settings(handle(), static_cast<std::uint32_t>(kind), &alignment, &max_blocks);
    }

    // Gives empty blocks back; see gabion_slots_trim. Returns bytes.
    GABION_OWN std::uint64_t trim() noexcept { return gabion_slots_trim(handle()); }

    // The figures of one affinity; all zero when there is none of that number.
    GABION_OWN gabion_slots_figures stats(affinity kind) const noexcept {
        return figures(static_cast<std::uint32_t>(kind));
    }

    // The figures of all affinities together.
    GABION_OWN gabion_slots_figures stats() const noexcept { return figures(GABION_ALL_AFFINITIES); }

    // Checks the books; see gabion_slots_validate.
    GABION_OWN gabion_status validate() const noexcept { return gabion_slots_validate(handle()); }

    // The figures as a table.
    GABION_OWN std::string report() const {
        std::string text;
        std::size_t needed = 0;
        gabion_status status = gabion_slots_report(handle(), nullptr, 0, &needed);
        while (status == GABION_TOO_SMALL) {
            // Some lines more than are needed, because another thread may make the table longer meanwhile.
            text.resize(needed + 1024);
            status = gabion_slots_report(handle(), text.data(), text.size(), &needed);
        }
        text.resize(needed == 0 ? 0 : needed - 1);
        return text;
    }

  private:
    // Those of the process, by the name that stays.
    struct of_process {};
    GABION_OWN explicit constexpr slots(of_process) noexcept : of_process_(true), fixed_(true) {}

    union undestroyed;
    GABION_OWN static undestroyed process_;

    GABION_OWN gabion_slots_figures figures(std::uint32_t kind) const noexcept {
        gabion_slots_figures figures{};
        static_cast<void>(gabion_slots_stats(handle(), kind, &figures));
        return figures;
    }

    // Null as well when these are the slots of the process, which are looked up each time: there may be no memory for
    // them yet.
    gabion_slots *handle_ = nullptr;
    bool of_process_ = false;
    // True for what global() gives.
    bool fixed_ = false;
};

// Made by the compiler, not at the first use, and destroyed by nobody.
union slots::undestroyed {
    GABION_OWN constexpr undestroyed() noexcept : it(of_process{}) {}
    GABION_OWN ~undestroyed() {}
    slots it;
};
inline slots::undestroyed slots::process_;
inline slots &slots::global() noexcept { return process_.it; }

#if defined(__cpp_lib_memory_resource) || __has_include(<memory_resource>)
// One affinity of some slots as a std::pmr::memory_resource. The slots must outlive it.
class GABION_OWN_CLASS memory_resource final : public std::pmr::memory_resource {
  public:
    // Of the slots of the process.
    GABION_OWN explicit memory_resource(affinity kind = affinity::objects) noexcept
        : slots_(nullptr), kind_(kind), of_process_(true) {}
    // Of what the owner has now. Where that was moved away, it serves nothing.
    GABION_OWN explicit memory_resource(slots &owner, affinity kind = affinity::objects) noexcept
        : slots_(owner.is_global() ? nullptr : owner.handle()), kind_(kind), of_process_(owner.is_global()) {}

  private:
    GABION_OWN void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t asked = detail::asked(bytes, alignment);
        return of_process_ ? detail::object(kind_, bytes, asked) : detail::allocate(slots_, kind_, bytes, asked);
    }
    GABION_OWN void do_deallocate(void *memory, std::size_t bytes, std::size_t alignment) override {
        const std::size_t asked = detail::asked(bytes, alignment);
        of_process_ ? detail::end(kind_, memory, bytes, asked)
                    : detail::deallocate(slots_, kind_, memory, bytes, asked);
    }
    GABION_OWN bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->handle() == handle() && same->kind_ == kind_;
#else
        // What kind of resource the other one is cannot be asked.
        return this == &other;
#endif
    }

    // Not looked up once for all: there may have been no memory for them then.
    GABION_OWN gabion_slots *handle() const noexcept { return of_process_ ? detail::global() : slots_; }

    gabion_slots *slots_;
    affinity kind_;
    bool of_process_;
};
#endif

// An allocator for containers, on the slots of the process. Without state: all of one affinity are equal.
template <class T, affinity Kind = affinity::objects> class allocator {
  public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    template <class U> struct rebind { using other = allocator<U, Kind>; };

    allocator() noexcept = default;
    template <class U> GABION_OWN allocator(const allocator<U, Kind> &) noexcept {}

    GABION_OWN T *allocate(std::size_t count) {
        // In parentheses, because the headers of Windows have a macro of this name.
        if (count > (std::numeric_limits<std::size_t>::max)() / sizeof(T)) {
            detail::fail<std::bad_array_new_length>();
        }
        return static_cast<T *>(detail::object(Kind, count * sizeof(T), alignment(count)));
    }
    GABION_OWN void deallocate(T *memory, std::size_t count) noexcept {
        detail::end(Kind, memory, count * sizeof(T), alignment(count));
    }

    template <class U> GABION_OWN bool operator==(const allocator<U, Kind> &) const noexcept { return true; }
    template <class U> GABION_OWN bool operator!=(const allocator<U, Kind> &) const noexcept { return false; }

  private:
    // A multiple of T's size is a multiple of T's alignment, unless it is 0.
    GABION_OWN static constexpr std::size_t alignment(std::size_t count) noexcept {
        return detail::asked(count * alignof(T), alignof(T));
    }
};

// The forms of new, and of the deletes that go with them, that both classes below have. In each class anew, because
// what a class declares hides all others, and because compilers want new and delete side by side.
#define GABION_NEWS                                                                                                    \
    GABION_OWN static void *operator new(std::size_t size) {                                                           \
        return detail::object(Kind, size, detail::natural);                                                            \
    }                                                                                                                  \
    GABION_OWN static void *operator new(std::size_t size, std::align_val_t alignment) {                               \
        return detail::object(Kind, size, static_cast<std::size_t>(alignment));                                        \
    }                                                                                                                  \
    GABION_OWN static void *operator new(std::size_t size, const std::nothrow_t &) noexcept {                          \
        return detail::try_object(Kind, size, detail::natural);                                                        \
    }                                                                                                                  \
    GABION_OWN static void *operator new(std::size_t size, std::align_val_t alignment,                                 \
                                         const std::nothrow_t &) noexcept {                                            \
        return detail::try_object(Kind, size, static_cast<std::size_t>(alignment));                                    \
    }                                                                                                                  \
    GABION_OWN static void *operator new(std::size_t, void *place) noexcept { return place; }                          \
    GABION_OWN static void *operator new[](std::size_t size) { return operator new(size); }                            \
    GABION_OWN static void *operator new[](std::size_t size, std::align_val_t alignment) {                             \
        return operator new(size, alignment);                                                                          \
    }                                                                                                                  \
    GABION_OWN static void *operator new[](std::size_t size, const std::nothrow_t &nothrow) noexcept {                 \
        return operator new(size, nothrow);                                                                            \
    }                                                                                                                  \
    GABION_OWN static void *operator new[](std::size_t size, std::align_val_t alignment,                               \
                                           const std::nothrow_t &nothrow) noexcept {                                   \
        return operator new(size, alignment, nothrow);                                                                 \
    }                                                                                                                  \
    GABION_OWN static void *operator new[](std::size_t, void *place) noexcept { return place; }                        \
    /* When a constructor throws. */                                                                                   \
    GABION_OWN static void operator delete(void *memory, const std::nothrow_t &) noexcept { detail::undo(memory); }    \
    GABION_OWN static void operator delete(void *memory, std::align_val_t, const std::nothrow_t &) noexcept {          \
        detail::undo(memory);                                                                                          \
    }                                                                                                                  \
    GABION_OWN static void operator delete(void *, void *) noexcept {}                                                 \
    GABION_OWN static void operator delete[](void *memory, const std::nothrow_t &) noexcept { detail::undo(memory); }  \
    GABION_OWN static void operator delete[](void *memory, std::align_val_t, const std::nothrow_t &) noexcept {        \
        detail::undo(memory);                                                                                          \
    }                                                                                                                  \
    GABION_OWN static void operator delete[](void *, void *) noexcept {}                                               \
    /* The length of an array is in its memory, not in its type. */                                                    \
    GABION_OWN static void operator delete[](void *memory) noexcept { detail::undo(memory); }                          \
    GABION_OWN static void operator delete[](void *memory, std::align_val_t) noexcept { detail::undo(memory); }

// A base class whose heirs are allocated in the slots of the process by new, and freed by delete with the size that the
// compiler knows. Heirs that are deleted through a base need a virtual destructor, as always in C++. What makes an
// object within something of its own asks no class's new: std::make_shared, containers, std::optional. There is
// gabion::make_shared in place of the first, and gabion::allocator for containers. WARNING: where delete is given what
// is not of the slots of the process, or was released, it reads and writes memory that is not the library's; the
// checked build refuses that. (Of a sized and an unsized form in one class, delete takes the unsized one; hence two
// classes. Heirs of an alignment above that of every new are freed without the size in both: when a constructor throws,
// GCC calls the unsized form alone.)
//
// Self, any type, makes the base another one: a class that holds members of classes with the same base gets padding in
// front of them, because two bases of one type may not have one address. struct node : in_slots<affinity::nodes, node>
// has the size that it would have without.
template <affinity Kind = affinity::objects, class Self = void> struct in_slots {
    // What heirs are packed by.
    GABION_OWN static constexpr affinity gabion_affinity = Kind;

    GABION_NEWS
    GABION_OWN static void operator delete(void *memory, std::size_t size) noexcept {
        detail::end(Kind, memory, size, detail::natural);
    }
    GABION_OWN static void operator delete(void *memory, std::align_val_t) noexcept { detail::undo(memory); }
};

// The same for classes whose deletes do not know the size: it is found by the address.
template <affinity Kind = affinity::objects, class Self = void> struct in_slots_unsized {
    // What heirs are packed by.
    GABION_OWN static constexpr affinity gabion_affinity = Kind;

    GABION_NEWS
    GABION_OWN static void operator delete(void *memory) noexcept { detail::undo(memory); }
    GABION_OWN static void operator delete(void *memory, std::align_val_t) noexcept { detail::undo(memory); }
};

#undef GABION_NEWS

// For a class of which several bases are in slots, in its public part: which one's new and delete it takes. Without it
// they are ambiguous, unless all of these bases have the very same in_slots.
#define GABION_NEWS_OF(base)                                                                                           \
    using base::operator new;                                                                                          \
    using base::operator new[];                                                                                        \
    using base::operator delete;                                                                                       \
    using base::operator delete[];                                                                                     \
    using base::gabion_affinity

namespace detail {

// The affinity of a class: that of the base class above that it has, or that of anything.
template <class T, class = void> struct kind_of : std::integral_constant<affinity, affinity::objects> {};
template <class T>
struct kind_of<T, std::void_t<decltype(T::gabion_affinity)>> : std::integral_constant<affinity, T::gabion_affinity> {};

} // namespace detail

// As std::make_shared, in the slots of the process: the object and its counts lie together, packed by the affinity of
// the class, or as objects when it has neither of the base classes. (std::make_shared takes them from the global
// operator new; a std::shared_ptr that is made from `new node` has the object in slots, and the counts elsewhere.)
// Throws std::bad_alloc, and what the constructor throws. For another affinity:
// std::allocate_shared<T>(gabion::allocator<T, affinity>(), arguments...).
template <class T, class... Arguments> GABION_OWN std::shared_ptr<T> make_shared(Arguments &&...arguments) {
    static_assert(!std::is_array_v<T>, "a shared array is a std::vector with a gabion::allocator, behind a pointer");
    using own = allocator<std::remove_cv_t<T>, detail::kind_of<T>::value>;
    return std::allocate_shared<T>(own(), std::forward<Arguments>(arguments)...);
}

} // namespace gabion

// The rest of it, in files of their own.
#include <gabion_slots.hpp>

#include <gabion_pool.hpp>

#include <gabion_pile.hpp>

#undef GABION_OWN
#undef GABION_OWN_CLASS

#pragma pop_macro("slots")

#endif
