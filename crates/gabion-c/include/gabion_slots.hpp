// Objects and containers in slots that are named, and of affinities that are made while the program runs: a part of
// gabion.hpp, which includes it.
//
//     gabion::slots level;
//     gabion::affinity edges{};
//     level.make_affinity("edges", edges);
//     auto *first = gabion::make<edge>(level, edges, 1, 2);                     // gone with the level, or by destroy
//     auto second = gabion::make_unique<edge>(level, edges, 2, 3);
//     std::vector<int, gabion::slots_allocator<int>> numbers({level, gabion::affinity::data});
#ifndef GABION_HPP
#include <gabion.hpp>
#elif !defined(GABION_SLOTS_HPP)
#define GABION_SLOTS_HPP

namespace gabion {

// Ends what make or make_unique has made, while the slots are there: as the type that it was made as, or by way of a
// virtual destructor as any base.
struct deleter {
    gabion_slots *handle = nullptr;

    template <class T> GABION_OWN void operator()(T *object) const noexcept {
        auto *plain = const_cast<std::remove_cv_t<T> *>(object);
        void *begin = plain;
        // A base need not begin where its object does.
        if constexpr (std::is_polymorphic_v<T>) begin = dynamic_cast<void *>(plain);
        object->~T();
        static_cast<void>(gabion_slots_free(handle, begin));
    }
};

// Makes an object in some slots, to be ended by destroy. Slots that end take its memory and call no destructor. Throws
// std::bad_alloc, and what the constructor throws.
template <class T, class... Arguments> GABION_OWN T *make(slots &owner, affinity kind, Arguments &&...arguments) {
    // Gives the memory back if the constructor throws.
    struct room {
        slots &owner;
        void *memory;
        ~room() { static_cast<void>(owner.deallocate(memory)); }
    } place{owner, owner.allocate(kind, sizeof(T), detail::asked(sizeof(T), alignof(T)))};
    T *const made = ::new (place.memory) T(std::forward<Arguments>(arguments)...);
    place.memory = nullptr;
    return made;
}

// The same, owned: for no longer than the slots are there.
template <class T, class... Arguments>
GABION_OWN std::unique_ptr<T, deleter> make_unique(slots &owner, affinity kind, Arguments &&...arguments) {
    return {make<T>(owner, kind, std::forward<Arguments>(arguments)...), deleter{owner.handle()}};
}

// Ends what make has made in these slots; see deleter. nullptr does nothing.
template <class T> GABION_OWN void destroy(slots &owner, T *object) noexcept {
    if (object != nullptr) {
        deleter{owner.handle()}(object);
    }
}

// An allocator for containers, which must end before the slots do.
template <class T> class slots_allocator {
  public:
    using value_type = T;
    using is_always_equal = std::false_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    GABION_OWN slots_allocator(slots &owner, affinity kind) noexcept : slots_(owner.handle()), kind_(kind) {}
    template <class U>
    GABION_OWN slots_allocator(const slots_allocator<U> &other) noexcept : slots_(other.slots_), kind_(other.kind_) {}

    GABION_OWN T *allocate(std::size_t count) {
        if (count > (std::numeric_limits<std::size_t>::max)() / sizeof(T)) {
            detail::fail<std::bad_array_new_length>();
        }
        return static_cast<T *>(detail::allocate(slots_, kind_, count * sizeof(T), alignment(count)));
    }
    GABION_OWN void deallocate(T *memory, std::size_t count) noexcept {
        detail::deallocate(slots_, kind_, memory, count * sizeof(T), alignment(count));
    }

    template <class U> GABION_OWN bool operator==(const slots_allocator<U> &other) const noexcept {
        return slots_ == other.slots_ && kind_ == other.kind_;
    }
    template <class U> GABION_OWN bool operator!=(const slots_allocator<U> &other) const noexcept {
        return !(*this == other);
    }

  private:
    template <class U> friend class slots_allocator;

    GABION_OWN static constexpr std::size_t alignment(std::size_t count) noexcept {
        return detail::asked(count * alignof(T), alignof(T));
    }

    gabion_slots *slots_;
    affinity kind_;
};

} // namespace gabion

#endif
