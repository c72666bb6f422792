"""Piles beside the collector, at the interpreter's end, and in sub-interpreters."""

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model import Plain, Slotted, person

import gabion

# CPython 3.13 without the global lock makes every class immortal as soon as a second thread has run.
CLASSES_DIE = getattr(sys, "_is_gil_enabled", lambda: True)() or sys.version_info >= (3, 14)


def make_class(name: str = "Made") -> Any:
    """A class that the module holds by name only until it is taken away."""
    made = type(name, (Plain,), {"__module__": __name__})
    globals()[name] = made
    return made


@pytest.mark.skipif(not CLASSES_DIE, reason="classes are immortal")
def test_a_cycle_of_class_pile_and_attribute_is_collected() -> None:
    made = make_class()
    made.pile = gabion.Pile()
    pointer = made.pile.put(made(a=1))
    assert type(made.pile.get(pointer)) is made
    dies, pile_dies = weakref.ref(made), weakref.ref(made.pile)
    del globals()["Made"], made
    gc.collect()
    assert dies() is None
    assert pile_dies() is None


@pytest.mark.skipif(not CLASSES_DIE, reason="classes are immortal")
@pytest.mark.parametrize("slots", [False, True])
def test_a_pile_holds_the_classes_of_what_it_stores_and_lets_go(slots: bool) -> None:
    made: Any = type("Made", (), {"__module__": __name__, **({"__slots__": ("a",)} if slots else {})})
    globals()["Made"] = made
    pile = gabion.Pile()
    thing = made()
    thing.a = 1
    pointer = pile.put(thing)
    dies = weakref.ref(made)
    del globals()["Made"], made, thing
    gc.collect()
    assert pile.get(pointer).a == 1
    assert dies() is not None
    del pile
    gc.collect()
    assert dies() is None


def test_piles_in_cycles_and_with_iterators_and_views() -> None:
    pile = gabion.Pile()
    holder = Plain(pile=pile, iterator=iter(pile), view=pile.view(pile.put(b"x" * 2_000_000)))
    holder.me = holder
    dies = weakref.ref(pile)
    del pile, holder
    gc.collect()
    assert dies() is None


class UsesPile:
    """A finalizer in a cycle with the pile that it uses."""

    seen: list[Any] = []  # noqa: RUF012

    def __init__(self, pile: gabion.Pile) -> None:
        self.pile, self.pointer, self.me = pile, pile.put(Slotted(5)), self

    def __del__(self) -> None:
        self.seen.append(self.pile.get(self.pointer).number)
        self.pile.put(self.seen)


def test_a_finalizer_that_uses_a_pile_of_its_own_cycle() -> None:
    UsesPile.seen.clear()
    UsesPile(gabion.Pile())
    gc.collect()
    assert UsesPile.seen == [5]


def test_a_pile_that_the_collector_has_already_cleared() -> None:
    # An object without a collector's header is finalized while the cycle is being cleared, when the pile may have
    # let go of its classes.
    seen: list[Any] = []

    class Cycle:
        pass

    def leaf_class(pile: gabion.Pile, pointer: int) -> type:
        def finalize(self: Any) -> None:
            for call in (
                lambda: pile.get(pointer), lambda: pile.put(Slotted(1)), lambda: pile.put(person(1)),
                lambda: pile.fields(pointer, "number"), pile.stats, pile.validate, lambda: list(pile),
            ):  # fmt: skip
                try:
                    seen.append(call())
                except Exception as error:
                    seen.append(error)

        return type("Leaf", (), {"__slots__": (), "__del__": finalize})

    for order in range(6):
        pile = gabion.Pile()
        pointer = pile.put(Slotted(3))
        pile.get(pointer)
        cycle = Cycle()
        parts = {"pile": pile, "leaf": leaf_class(pile, pointer)(), "me": cycle}
        for name in sorted(parts, key=lambda name, order=order: hash((name, order))):
            setattr(cycle, name, parts[name])
        del pile, parts, cycle
        gc.collect()
    assert len(seen) == 6 * 7


def test_stored_objects_are_nothing_to_the_collector() -> None:
    pile = gabion.Pile()
    pointers = pile.put_many(person(i) for i in range(10))
    pile.get_many(pointers)
    gc.collect()
    before = len(gc.get_objects())
    pointers = pile.put_many({"id": i, "tags": [str(i)], "thing": Slotted(i)} for i in range(100_000))
    gc.collect()
    assert abs(len(gc.get_objects()) - before) < 50
    assert pile.get(pointers[-1])["id"] == 99_999


def test_built_objects_are_collected_like_others() -> None:
    pile = gabion.Pile()
    loop = Plain()
    loop.me = [loop]
    pointer = pile.put(loop)
    found = pile.get(pointer)
    assert gc.is_tracked(found)
    dies = weakref.ref(found)
    del found
    gc.collect()
    assert dies() is None


def test_a_pile_freed_in_another_thread() -> None:
    for size in (10, 3000, 2_000_000):
        pile = gabion.Pile()
        pile.put(b"x" * size)
        view = pile.view(next(iter(pile)))
        box = [pile]
        dies = weakref.ref(pile)
        del pile
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        assert dies() is None
        assert view == b"x" * size


def test_collections_in_the_midst_of_building(pile: gabion.Pile) -> None:
    value = [Plain(a=i, b=[Slotted(i, "x", {"k": (i, [i])})]) for i in range(300)]
    pointer = pile.put(value)
    old = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(3):
            assert pile.get(pointer) == value
            assert pile.get(pile.put(value)) == value
    finally:
        gc.set_threshold(*old)


def test_references_to_half_built_objects_are_harmless(pile: gabion.Pile) -> None:
    for slots in (True, False):

        class Peeks:
            def __getstate__(self) -> int:
                return 1

            def __setstate__(self, state: int) -> None:
                for found in gc.get_objects():
                    if type(found) in (Slotted, Plain, list, dict, tuple) and len(str(type(found))) > 0:
                        repr(type(found))
                        if type(found) in (Slotted, Plain):
                            repr(found)
                            gc.get_referents(found)

        Peeks.__qualname__ = "Peeks"
        globals()["Peeks"] = Peeks
        inner = Slotted(1, "text", None) if slots else Plain(a=1)
        inner.note = [Peeks(), inner]
        found = pile.get(pile.put([inner, (Peeks(), inner)]))
        assert found[0].note[1] is found[0] is found[1][1]


PEEKING = """
    import enum, gabion, gc, sys
    armed, seen, kept = False, [], None
    def look():
        global kept
        if not armed:
            return
        found = gc.get_objects()
        for one in found:
            if type(one) in (list, tuple, Named) and len(one) == 7:
                seen.append(len(list(one)))
        kept = [one for one in found if type(one) is frozenset]
    class Member(enum.Enum):
        A = 1
        B = 2
        def __hash__(self): look(); return 5
    class Meta(type):
        def __hash__(self): look(); return 6
        def __eq__(self, other): return self is other
    class Class(metaclass=Meta): pass
    class Key:
        def __hash__(self): look(); return 7
        def __eq__(self, other): return True
    class Plain: pass
    from typing import NamedTuple
    Named = NamedTuple("Named", [(name, object) for name in "abcdefg"])
    odd = Plain()
    odd.__dict__[Key()] = 1
    collected = [[i] for i in range(3000)]
"""


@pytest.mark.parametrize("shape", ["[*values]", "(*values,)", "Named(*values)"])
@pytest.mark.parametrize(
    "held",
    [
        "{Member.A, Member.B}",
        "frozenset(Member)",
        "frozenset([Class, Member.A, 5])",
        "{Member.A: 1}",
        "{Class}",
        "{(1, Key())}",
        "odd",
        "gone.Gone()",
        "collected",
    ],
)
def test_code_that_sees_all_objects_sees_none_unfinished(script: Callable[..., str], shape: str, held: str) -> None:
    script(
        PEEKING
        + f"""
    held = {held if held != "gone.Gone()" else "None"}
    if {"gone" in held}:
        import types
        gone = sys.modules["gone"] = types.ModuleType("gone")
        exec("class Gone: pass", gone.__dict__)
        held = gone.Gone()
        class Finder:
            def find_spec(self, name, path=None, target=None):
                look() if name == "gone" else None
        sys.meta_path.insert(0, Finder())
    values = [-12345, "text", held, 4.5, [5], 6, 7]
    pile = gabion.Pile()
    pointer = pile.put({shape})
    sys.modules.pop("gone", None)
    gc.callbacks.append(lambda phase, info: look() if {held == "collected"} else None)
    gc.collect()
    armed = True
    found = pile.get(pointer)
    armed = False
    gc.collect()
    assert gc.is_tracked(found)
    assert (len(found), found[0], found[6]) == (7, -12345, 7)
    assert all(length == 7 for length in seen)
    """
    )


EXIT = {
    "live piles, views and iterators": """
        import gabion
        pile = gabion.Pile()
        pointers = pile.put_many([1, "two", {3: [4]}, b"x" * 2_000_000])
        view, iterator = pile.view(pointers[3]), iter(pile)
        next(iterator)
        """,
    "everything in a cycle": """
        import gabion, sys
        class Holder: pass
        holder = Holder()
        holder.pile = gabion.Pile()
        holder.pointer = holder.pile.put(holder.__class__)
        holder.view = holder.pile.view(holder.pile.put(b"x" * 100))
        holder.me = holder
        sys.modules["kept"] = holder
        """,
    "a finalizer that uses a pile": """
        import gabion
        pile = gabion.Pile()
        pointer = pile.put([1])
        class Last:
            def __del__(self):
                assert pile is None or pile.get(pointer) == [1]
        last = Last()
        """,
    "daemon threads": """
        import gabion, threading, time
        pile = gabion.Pile()
        class Thing:
            def __init__(self): self.a = [1]
        def work():
            own = []
            while True:
                own.append(pile.put(Thing()))
                pile.get(own[-1])
                pile.replace(own[0], b"x" * 3000)
                for found in zip(range(5), pile): pass
                view = pile.view(pile.put(b"view" * 100))
                if len(own) > 50: pile.remove_many(own[:40]); del own[:40]
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.15)
        """,
    "daemon threads in the code of what they store": """
        import gabion, threading, time
        pile = gabion.Pile()
        def run():
            for _ in range(200): pass
            time.sleep(0)
        class Reduced:
            def __reduce__(self): run(); return (make, ())
            def __del__(self): run()
        def make(): run(); return Stateful()
        class Stateful:
            def __getstate__(self): run(); return 1
            def __setstate__(self, state): run()
            @property
            def field(self): run(); return 2
        class Key:
            def __hash__(self): run(); return 3
            def __eq__(self, other): run(); return True
        class Pointer:
            def __index__(self): run(); return fixed
        class Listed(list):
            def append(self, item): run(); super().append(item)
            def __len__(self): run(); return super().__len__()
        def some():
            for _ in range(9): run(); yield Reduced()
        fixed = pile.put(Stateful())
        keyed = pile.put({Key(): 1, "field": Stateful()})
        work = [
            lambda: pile.get(pile.put(Reduced())),
            lambda: pile.remove_many(pile.put_many(some())),
            lambda: pile.get_many(fixed for _ in some()),
            lambda: pile.fields(fixed, "field"),
            lambda: pile.fields(keyed, "field"),
            lambda: pile.get(Pointer()),
            lambda: pile.replace(fixed, Stateful()),
            lambda: pile.pop(pile.put([Listed([Reduced(), {Key()}])])),
            lambda: (pile.compact(), pile.validate()),
        ]
        def forever(step):
            while True: step()
        for step in work: threading.Thread(target=forever, args=(step,), daemon=True).start()
        time.sleep(0.2)
        """,
    "an exception": """
        import gabion, sys
        def main():
            pile = gabion.Pile()
            view = pile.view(pile.put(b"x" * 100))
            sys.exit(0)
        main()
        """,
    "exit functions": """
        import atexit, gabion
        pile = gabion.Pile()
        pointer = pile.put([1])
        @atexit.register
        def last():
            assert pile.get(pointer) == [1]
            pile.put("late")
            pile.close()
        """,
    "a module that is imported again": """
        import sys, gabion
        first = gabion.Pile
        pile = gabion.Pile(); pointer = pile.put([1])
        for name in [name for name in sys.modules if name.startswith("gabion")]: del sys.modules[name]
        try:
            import gabion as again
        except ImportError:
            again = None
        assert pile.get(pointer) == [1]
        if again is not None:
            other = again.Pile()
            assert other.get(other.put([2])) == [2]
            assert pile.get(pointer) == [1]
        """,
}


@pytest.mark.parametrize("case", EXIT)
def test_the_interpreter_ends_in_silence(script: Callable[..., str], case: str) -> None:
    script(EXIT[case])
    script(EXIT[case], "-X", "dev", "-W", "error")


def test_development_mode_finds_nothing(script: Callable[..., str]) -> None:
    script(
        """
        import gc
        import gabion
        from model import some_of_everything, person, SIZES
        with gabion.Pile(max_bytes="64 MiB") as pile:
            for _ in range(3):
                pointers = pile.put_many(some_of_everything())
                assert pile.get_many(pointers) == some_of_everything()
                for pointer, size in zip(pointers, SIZES):
                    pile.replace(pointer, b"x" * size)
                    pile.view(pointer)
                pile.fields(pile.put(person(1)), "id", "note")
                for bad in ((i for i in ()), lambda: 1):
                    try:
                        pile.put([bad])
                    except gabion.CodecError:
                        pass
                pile.remove_many(pointers)
                gc.collect()
                pile.compact()
                pile.validate()
        """,
        "-X",
        "dev",
        "-W",
        "error",
        "-b",
    )


@pytest.mark.parametrize("first", ["main", "sub"])
def test_sub_interpreters_are_refused(script: Callable[..., str], first: str) -> None:
    script(
        f"first = {first!r}\n"
        """if True:
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                sys.exit(0)
        program = (
            "for _ in range(2):\\n    try:\\n        import gabion\\n"
            "    except ImportError as error:\\n        assert 'interpreter' in str(error), error\\n"
            "    else:\\n        raise SystemError('not refused')\\n"
        )
        if first == "main":
            import gabion
        for _ in range(3):
            made = interpreters.create()
            run = getattr(interpreters, "run_string", None) or interpreters.exec
            failed = run(made, program)
            assert not failed, failed
            interpreters.destroy(made)
            import gabion
            with gabion.Pile() as pile, gabion.Cache("1 MiB") as cache:
                assert pile.get(pile.put([1, "x", {2: [3]}])) == [1, "x", {2: [3]}]
                cache["key"] = None
                assert "key" in cache
        """
    )


def test_reference_counts_are_what_they_were(pile: gabion.Pile) -> None:
    value = [Plain(a="canary" * 3), Slotted(10**20, "canary text", None), ("tuple", 1.5), {"k": b"canary bytes"}]
    watched = [value, *value, value[0].a, value[1].number, value[1].first, Plain, Slotted, *value[3].values()]
    pointer = pile.put(value)

    def use() -> None:
        for _ in range(200):
            other = pile.put(value)
            pile.replace(other, [value, value])
            pile.get(other)
            pile.get_many([other, pointer])
            pile.put_many([value, value])
            pile.pop(other)
            pile.fields(pile.put(value[0]), "a")
            with contextlib.suppress(gabion.CodecError):
                pile.put([value, (i for i in ())])
            with contextlib.suppress(gabion.PointerError):
                pile.get(other)
            pile.get(other, value)
            pile.get_many([other], value)
            pile.view(pile.put(value[3]["k"]))
            other in pile  # noqa: B015

    use()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    use()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert all(abs(a - b) < 20 for a, b in zip(after, before)), (before, after)


def test_what_ends_while_a_refused_class_is_told_stores_objects_of_new_classes(
    script: Callable[..., str], tmp_path: Path
) -> None:
    """A collection may run wherever an exception is made: it did so inside the lock that the put in it waited for."""
    out = script(
        f"""
        import gc, os, resource
        import gabion

        def new():
            classes.append(type(f"Class{{len(classes)}}" + 30_000 * "s", (), {{"__module__": "__main__"}}))
            globals()[classes[-1].__name__] = classes[-1]
            return classes[-1]()

        def is_refused():
            try:
                pile.put(new())
            except OSError as error:
                return "cannot be noted" in str(error)

        class Circle:
            def __init__(self):
                self.own = self

            def __del__(self):
                ended.append(is_refused())

        classes, ended, path = [], [], {str(tmp_path / "pile")!r}
        pile = gabion.Pile(path=path)
        size = os.stat(path).st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        gc.disable()
        for threshold in range(1, 50):
            gc.collect()
            Circle()
            gc.set_threshold(threshold)
            gc.enable()
            assert is_refused()
            gc.disable()
        gc.collect()
        print(len(ended), all(ended))
        """
    )
    assert out == "49 True\n"
