// The scene graph benchmark in C++: classes with virtual functions, made by new and ended by delete, as scene graphs are.
//
//     scenegraph tree SUBJECT three-sizes|one-piece LEVELS PASSES
//     scenegraph pairs SUBJECT COUNT
//
// SUBJECT is gabion (deletes know the size), gabion-unsized (they do not), or new: the program's own new and delete, which
// another malloc may be loaded for. A wrong answer ends the run with exit status 1.
#include <gabion.hpp>

#include <array>
#include <cstring>
#include <memory>

#include "measures.hpp"

namespace {

constexpr int branches = 4;
constexpr int walks = 10;

// --- Where objects come from ---------------------------------------------------------------------

struct slots {
    using base = gabion::in_slots<gabion::affinity::nodes>;
    template <class T> using list = gabion::allocator<T, gabion::affinity::nodes>;
};

struct slots_unsized {
    using base = gabion::in_slots_unsized<gabion::affinity::nodes>;
    // A container always knows its size.
    template <class T> using list = gabion::allocator<T, gabion::affinity::nodes>;
};

struct stock {
    struct base {};
    template <class T> using list = std::allocator<T>;
};

// --- The tree ------------------------------------------------------------------------------------

// What a walk has seen: nodes are numbered in the order of building, which is that of walking.
struct walker {
    std::uint64_t nodes = 0;
    std::uint64_t wrong = 0;
};

// A leaf: 24 bytes.
template <class Source> class node : public Source::base {
  public:
    explicit node(std::uint64_t number) : number_(number) {}
    virtual ~node() = default;
    node(const node &) = delete;
    node &operator=(const node &) = delete;

    virtual void accept(walker &visitor) const { see(visitor); }

  protected:
    void see(walker &visitor) const { visitor.wrong |= number_ ^ visitor.nodes++; }

  private:
    std::uint64_t number_;
    std::uint64_t references_ = 1;
};

// An inner node and its list of children: 48 and 32 bytes.
template <class Source> class group final : public node<Source> {
  public:
    explicit group(std::uint64_t number) : node<Source>(number) { children_.reserve(branches); }
    ~group() override {
        for (node<Source> *child : children_) {
            delete child;
        }
    }
    void add(int, node<Source> *child) { children_.push_back(child); }
    void accept(walker &visitor) const override {
        this->see(visitor);
        for (const node<Source> *child : children_) {
            child->accept(visitor);
        }
    }

  private:
    std::vector<node<Source> *, typename Source::template list<node<Source> *>> children_;
};

// An inner node that holds its children itself: 56 bytes.
template <class Source> class quad final : public node<Source> {
  public:
    explicit quad(std::uint64_t number) : node<Source>(number) {}
    ~quad() override {
        for (node<Source> *child : children_) {
            delete child;
        }
    }
    void add(int branch, node<Source> *child) { children_[static_cast<std::size_t>(branch)] = child; }
    void accept(walker &visitor) const override {
        this->see(visitor);
        for (const node<Source> *child : children_) {
            child->accept(visitor);
        }
    }

  private:
    std::array<node<Source> *, branches> children_{};
};

template <class Source, class Inner> node<Source> *build(int levels, std::uint64_t &next) {
    if (levels == 0) {
        return new node<Source>(next++);
    }
    auto *inner = new Inner(next++);
    for (int branch = 0; branch < branches; ++branch) {
        inner->add(branch, build<Source, Inner>(levels - 1, next));
    }
    return inner;
}

template <class Source, class Inner> void tree(int levels, int passes) {
    report out;
    {
        std::uint64_t next = 0;
        delete build<Source, Inner>(2, next);
    }
    const double before = resident_mib();
    for (int pass = 1; pass <= passes; ++pass) {
        const std::string number = "_" + std::to_string(pass);
        std::uint64_t next = 0;
        const stopwatch construct;
        std::unique_ptr<node<Source>> root(build<Source, Inner>(levels, next));
        out.add("construct" + number, static_cast<double>(next) / construct.seconds(), "1/s");
        if (pass == 1) {
            out.add("rss_full", resident_mib() - before, "MiB");
        }
        const stopwatch traverse;
        for (int walk = 0; walk < walks; ++walk) {
            walker visitor;
            root->accept(visitor);
            if (visitor.nodes != next || visitor.wrong != 0) {
                wrong("a node does not hold what was written");
            }
        }
        out.add("traverse" + number, static_cast<double>(next * walks) / traverse.seconds(), "1/s");
        const stopwatch destroy;
        root.reset();
        out.add("destroy" + number, static_cast<double>(next) / destroy.seconds(), "1/s");
    }
}

template <class Source> void tree(const std::string &shape, int levels, int passes) {
    static_assert(sizeof(node<Source>) == 24 && sizeof(group<Source>) == 48 && sizeof(quad<Source>) == 56);
    if (shape == "three-sizes") {
        tree<Source, group<Source>>(levels, passes);
    } else {
        tree<Source, quad<Source>>(levels, passes);
    }
}

// --- The cost of the calls -----------------------------------------------------------------------

template <class Source> struct small final : Source::base {
    std::uint64_t words[8];
};

// One object of 64 bytes is made and ended, again and again: all of it in the cache, nothing but calls.
template <class Source> void pairs(long count) {
    report out;
    std::uint64_t sum = 0;
    const stopwatch clock;
    for (long turn = 0; turn < count; ++turn) {
        // Seen through a volatile pointer, so that the compiler keeps both calls.
        small<Source> *volatile kept = new small<Source>;
        kept->words[0] = static_cast<std::uint64_t>(turn);
        sum += kept->words[0];
        delete kept;
    }
    out.add("call_pair", clock.seconds() * 1e9 / static_cast<double>(count), "ns");
    if (sum != static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(count - 1) / 2) {
        wrong("an object does not hold what was written");
    }
}

template <class Source> bool run(int words, char **word) {
    if (words == 6 && std::strcmp(word[1], "tree") == 0) {
        tree<Source>(word[3], std::atoi(word[4]), std::atoi(word[5]));
        return true;
    }
    if (words == 4 && std::strcmp(word[1], "pairs") == 0) {
        pairs<Source>(std::atol(word[3]));
        return true;
    }
    return false;
}

} // namespace

int main(int words, char **word) {
    const std::string subject = words > 2 ? word[2] : "";
    const bool known = subject == "gabion"           ? run<slots>(words, word)
                       : subject == "gabion-unsized" ? run<slots_unsized>(words, word)
                       : subject == "new"            ? run<stock>(words, word)
                                                     : false;
    if (!known) {
        std::fputs("scenegraph tree gabion|gabion-unsized|new three-sizes|one-piece LEVELS PASSES\n"
                   "scenegraph pairs gabion|gabion-unsized|new COUNT\n",
                   stderr);
        return 2;
    }
    if (subject != "new" && gabion_slots_validate(gabion_slots_global()) != GABION_OK) {
        wrong(gabion_last_error());
    }
    return 0;
}
