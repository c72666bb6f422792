"""max_bytes: what does not fit is refused, what is stored stays, and room comes back."""

import copyreg
import itertools
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from many_threads import SECONDS, run, until
from model import SIZES, Plain, check_against, check_equations, person

import gabion

LIMITS = ("64 KiB", "128 KiB", "1 MiB", "5 MiB")


def fill(pile: gabion.Pile, size: int, most: int = 10**6) -> list[int]:
    pointers: list[int] = []
    with pytest.raises(gabion.LimitError):
        for i in range(most):
            pointers.append(pile.put(bytes([i % 256]) * size))  # noqa: PERF401  (what was stored must not be lost)
    return pointers


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("size", [10, 500, 1500, 50_000, 1_200_000])
def test_a_put_at_the_limit_leaves_everything_as_it_was(limit: str, size: int) -> None:
    with gabion.Pile(max_bytes=limit) as pile:
        pointers = fill(pile, size)
        stats = pile.stats()
        for _ in range(5):
            with pytest.raises(gabion.LimitError):
                pile.put(b"x" * size)
            with pytest.raises(MemoryError):
                pile.put(b"x" * 6_000_000)
        after = pile.stats()
        assert (after.objects, after.used_bytes) == (stats.objects, stats.used_bytes)
        assert after.reserved_bytes <= after.max_bytes
        pile.validate()
        assert all(pile.get(pointer) == bytes([i % 256]) * size for i, pointer in enumerate(pointers))
        if pointers:
            pile.remove(pointers.pop())
            pointers.append(pile.put(b"again" + b"x" * (size - 5)))
            assert pile.get(pointers[-1])[:5] == b"again"
        check_equations(pile)


@pytest.mark.parametrize("size", [10, 500, 1500, 50_000, 1_200_000])
def test_the_room_of_what_was_removed_is_used_again(size: int) -> None:
    with gabion.Pile(max_bytes="8 MiB") as pile:
        first = fill(pile, size)
        for _ in range(3):
            pile.remove_many(first[::2])
            kept = first[1::2]
            again = fill(pile, size)
            assert len(kept) + len(again) >= len(first) * 0.99
            first = kept + again
        pile.validate()
        # Memory of one size serves another size when it is empty.
        for other in (700, 30, 20_000, 3_000_000, 100):
            pile.remove_many(list(pile))
            assert len(fill(pile, other)) * other > 0.5 * (6 << 20) or other == 3_000_000
            pile.validate()


def test_a_single_object_over_the_limit() -> None:
    with gabion.Pile(max_bytes="4 MiB") as pile:
        kept = pile.put("kept")
        for size in (5 << 20, 50 << 20):
            with pytest.raises(gabion.LimitError) as error:
                pile.put(b"x" * size)
            assert str(size >> 20)[:1] in str(error.value) or str(size)[:4] in str(error.value)
            with pytest.raises(gabion.LimitError):
                pile.replace(kept, b"x" * size)
        check_against(pile, {kept: "kept"})


@pytest.mark.parametrize("old_size", [0, 30, 900, 1100, 60_000, 1_100_000])
def test_out_of_space_in_replace_leaves_the_old_object(old_size: int) -> None:
    with gabion.Pile(max_bytes="6 MiB") as pile:
        old = [pile.put(b"o" * old_size) for _ in range(3)]
        grown = pile.put(b"g")
        pile.replace(grown, b"g" * 5000)
        fillers = fill(pile, 3000) + fill(pile, 400) + fill(pile, 1)
        view = pile.view(old[0])
        model = dict.fromkeys(old, b"o" * old_size) | {grown: b"g" * 5000}
        refused = 0
        for pointer in model:
            for size in (2000, 100_000, 2_000_000):
                try:
                    pile.replace(pointer, b"n" * size)
                except gabion.LimitError:
                    refused += 1
                    pile.validate()
                else:
                    model[pointer] = b"n" * size
                assert pile.get(pointer) == model[pointer]
        assert refused >= 4
        assert view == b"o" * old_size
        assert all(pile.get(pointer) == value for pointer, value in model.items())
        assert len(pile) == 4 + len(fillers)
        check_equations(pile)


@pytest.mark.parametrize("reserve", [100, 900, 1100, 50_000, 500_000])
def test_what_was_reserved_is_there_when_the_pile_is_full(reserve: int) -> None:
    with gabion.Pile(max_bytes="6 MiB") as pile:
        pointer = pile.put(b"", reserve=reserve)
        for size in (100_000, 3000, 400, 1):
            fill(pile, size)
        for size in (reserve // 2, reserve - 20, 0, reserve - 20):
            pile.replace(pointer, b"r" * size)
            assert pile.get(pointer) == b"r" * size
        pile.validate()


def test_pop_get_view_and_remove_need_no_room() -> None:
    with gabion.Pile(max_bytes="2 MiB") as pile:
        pointers = [pile.put(person(i)) for i in range(100)]
        payload = pile.put(b"p" * 2000)
        fill(pile, 1)
        view = pile.view(payload)
        assert pile.get_many(pointers) == [person(i) for i in range(100)]
        assert pile.fields(pointers[3], "id") == (3,)
        assert pile.pop(pointers[0]) == person(0)
        pile.remove(payload)
        assert view == b"p" * 2000
        pile.compact()
        pile.validate()


def test_smaller_always_fits_in_the_own_place() -> None:
    with gabion.Pile(max_bytes="2 MiB") as pile:
        pointers = [pile.put(b"x" * (900 + i % 50)) for i in range(500)]
        fill(pile, 1)
        for pointer in pointers:
            pile.replace(pointer, b"y")
            assert pile.get(pointer) == b"y"
        pile.validate()


def test_views_hold_room_until_they_are_gone() -> None:
    with gabion.Pile(max_bytes="6 MiB") as pile:
        views = [pile.view(pile.put(b"v" * 1_500_000)) for _ in range(3)]
        pile.clear()
        with pytest.raises(gabion.LimitError):
            fill_all = [pile.put(b"x" * 1_500_000) for _ in range(4)]
            del fill_all
        pile.clear()
        views.clear()
        assert len([pile.put(b"x" * 1_500_000) for _ in range(3)]) == 3
        pile.validate()


@pytest.mark.parametrize("limit", LIMITS)
def test_anything_at_the_limit_for_a_while(limit: str) -> None:
    chooser = random.Random(limit)
    with gabion.Pile(max_bytes=limit) as pile:
        model: dict[int, Any] = {}
        for step in range(2000):
            value = bytes([step % 256]) * chooser.choice(SIZES[:40])
            action = chooser.randrange(4)
            try:
                if action < 2 or not model:
                    model[pile.put(value, reserve=chooser.choice((0, 0, 100, 3000)))] = value
                elif action == 2:
                    pointer = chooser.choice(list(model))
                    pile.replace(pointer, value)
                    model[pointer] = value
            except gabion.LimitError:
                for pointer in chooser.sample(list(model), len(model) // 3):
                    assert pile.pop(pointer) == model.pop(pointer)
            if step % 100 == 0:
                pile.validate()
                assert pile.stats().reserved_bytes <= pile.stats().max_bytes
        check_against(pile, model)
        pile.clear()
        pile.validate()
        assert pile.stats().used_bytes == 0


def test_limits_too_small_for_anything() -> None:
    for limit in (0, 1, 100, "10 KiB"):
        try:
            pile = gabion.Pile(max_bytes=limit)
        except (gabion.LimitError, ValueError):
            continue
        with pytest.raises(gabion.LimitError):
            pile.put("x")
        with pytest.raises(gabion.LimitError):
            pile.put_many(["x"])
        assert len(pile) == 0
        pile.close()


def test_a_pile_for_nothing_is_refused() -> None:
    for nothing in (0, "0", "0 GiB"):
        with pytest.raises(ValueError, match=r"^max_bytes=0: .* leave max_bytes out"):
            gabion.Pile(max_bytes=nothing)
    with gabion.Pile(max_bytes=None) as pile:
        assert pile.get(pile.put("there is room")) == "there is room"


def test_a_plan_that_was_made_for_a_refused_object_serves_later() -> None:
    with gabion.Pile(max_bytes="1 MiB") as pile:
        with pytest.raises(gabion.LimitError):
            pile.put(Plain(first="x" * 2_000_000, second=1))
        found = pile.get(pile.put(Plain(first="x", second=2)))
        assert (found.first, found.second) == ("x", 2)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process may have more than it was told")
def test_without_memory_to_encode_an_object_in_the_pile_stays_as_it_was(script: Callable[..., str]) -> None:
    said = script("""
        import resource
        from array import array
        import gabion

        pile = gabion.Pile()
        pointer = pile.put(["stone"])
        # The encoding of the first is not too large, but twice as much would be.
        large = [bytearray(14 << 20), bytes(30 << 20), bytearray(30 << 20)]
        large += ["x" * (30 << 20), "ä" * (30 << 20), array("B", bytes(30 << 20))]
        with open("/proc/self/statm") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (24 << 20), resource.RLIM_INFINITY))
        calls = (pile.put, lambda one: pile.replace(pointer, one), lambda one: pile.put_many([1, one]))
        for one in large:
            for thing in (one, [one, 1]):
                for call in calls:
                    try:
                        call(thing)
                    except MemoryError:
                        continue
                    print(type(one), "was stored")
        pile.validate()
        assert pile.get(pointer) == ["stone"] and len(pile) == 1
    """)
    assert said == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process may have more than it was told")
def test_what_the_system_refuses_is_no_limit(script: Callable[..., str]) -> None:
    said = script("""
        import resource
        import gabion, gabion.memory

        pile, large = gabion.Pile(), bytes(100 << 20)
        kept = pile.put("kept")
        with open("/proc/self/statm") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (24 << 20), resource.RLIM_INFINITY))
        many = lambda: [pile.put(b"x" * 900) for _ in range(100_000)]
        calls = (lambda: pile.put(large), lambda: pile.replace(kept, large), lambda: pile.put_many([large]), many)
        for call in (*calls, lambda: gabion.memory.rent("100 MiB"), lambda: gabion.memory.rent_group("100 MiB")):
            try:
                call()
            except MemoryError as error:
                assert type(error) is MemoryError and "the operating system " in str(error), repr(error)
            else:
                raise AssertionError("it was not refused")
        pile.validate()
        assert pile.get(kept) == "kept"
        print("done")
    """)
    assert said == "done\n"


class Endless:
    """Gives something new to store each time."""

    def __getstate__(self) -> Any:
        return {"next": Endless()}


class EndlessReducer:
    def __reduce__(self) -> Any:
        return EndlessReducer, (EndlessReducer(),)


class EndlessItems:
    def __reduce__(self) -> Any:
        return list, (), None, itertools.count()


class EndlessTexts:
    def __reduce__(self) -> Any:
        return list, (), None, (b"x" * 10_000 for _ in itertools.count())


class EndlessPairs:
    def __reduce__(self) -> Any:
        return dict, (), None, None, ((number, [number]) for number in itertools.count())


@pytest.mark.parametrize("kind", [Endless, EndlessReducer, EndlessItems, EndlessTexts, EndlessPairs])
def test_what_is_endless_ends_at_the_limit(kind: type) -> None:
    with gabion.Pile(max_bytes="256 KiB") as pile:
        kept = pile.put("kept")
        for call in (pile.put, lambda endless: pile.replace(kept, endless), lambda endless: pile.put_many([endless])):
            for value in (kind(), [1, kind()]):
                with pytest.raises(gabion.LimitError, match=r"takes more than 262144 bytes.*__reduce__"):
                    call(value)
        assert pile.get(kept) == "kept"
        assert len(pile) == 1
        pile.validate()


def test_reducers_without_end_are_found_long_before_a_large_limit() -> None:
    for limit in ("100 MiB", None):
        with gabion.Pile(max_bytes=limit) as pile:
            for kind in (Endless, EndlessReducer):
                with pytest.raises(gabion.CodecError, match=r"Endless.*__reduce__.*more than 100000 times"):
                    pile.put(kind())
            assert len(pile) == 0


class Linked:
    """Its reducer gives what was there before."""

    def __init__(self, value: int, behind: Any) -> None:
        self.value, self.behind = value, behind

    def __reduce__(self) -> Any:
        return Linked, (self.value, self.behind)


class LinkedByState(Linked):
    def __reduce__(self) -> Any:
        return copyreg.__newobj__, (LinkedByState,), dict(vars(self))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Linked, LinkedByState])
def test_a_long_list_of_nodes_has_an_end(kind: type) -> None:
    made: Any = None
    for value in range(150_000):
        made = kind(value, made)
    with gabion.Pile() as pile:
        found = pile.get(pile.put(made))
        for value in reversed(range(150_000)):
            assert found.value == value
            found, made = found.behind, made.behind


def test_the_limit_can_be_read_and_set() -> None:
    with gabion.Pile(max_bytes="1 MiB") as pile, gabion.Pile() as other:
        assert pile.max_bytes == pile.stats().max_bytes == 1 << 20
        for given, limit in ((2 << 20, 2 << 20), ("3 MiB", 3 << 20), (None, other.max_bytes)):
            pile.max_bytes = given
            assert pile.max_bytes == pile.stats().max_bytes == limit
        for wrong in (0, 128, "1 KiB", -1, "many"):
            with pytest.raises(ValueError, match=r"^max_bytes="):
                pile.max_bytes = wrong
        for wrong in (1.5, b"1", True):
            with pytest.raises(TypeError, match=r"^max_bytes must be"):
                pile.max_bytes = wrong
        with pytest.raises(AttributeError):
            del pile.max_bytes
        assert pile.max_bytes == other.max_bytes


def test_a_raised_limit_lets_go_on() -> None:
    with gabion.Pile(max_bytes="1 MiB") as pile:
        pointers = fill(pile, 5000)
        with pytest.raises(gabion.LimitError, match=r"raise pile\.max_bytes"):
            pile.put(b"x" * 2_000_000)
        pile.max_bytes = "8 MiB"
        assert len(pile.get(pile.put(b"x" * 2_000_000))) == 2_000_000
        pointers += fill(pile, 5000)
        assert len(pointers) * 5000 > 4 << 20
        pile.validate()


def test_a_limit_below_what_is_in_use_takes_nothing_away() -> None:
    with gabion.Pile(max_bytes="8 MiB") as pile:
        pointers = fill(pile, 5000)
        pile.remove_many(pointers[len(pointers) // 2 :])
        kept = pointers[: len(pointers) // 2]
        pile.max_bytes = "3 MiB"
        assert pile.stats().reserved_bytes > pile.max_bytes == 3 << 20
        with pytest.raises(gabion.LimitError, match="are in use"):
            pile.put(b"x" * 2_000_000)
        assert all(len(pile.get(pointer)) == 5000 for pointer in kept)
        pile.validate()
        pile.remove_many(kept)
        pile.compact()
        assert len(pile.get(pile.put(b"x" * 2_000_000))) == 2_000_000
        check_equations(pile)


def test_a_lowered_limit_gives_empty_memory_back() -> None:
    with gabion.Pile(max_bytes="32 MiB") as pile:
        fill(pile, 5000)
        pile.clear()
        before = gabion.memory.stats().held_idle
        pile.max_bytes = "1 MiB"
        assert gabion.memory.stats().held_idle < before - (16 << 20)
        pile.validate()


def test_what_is_endless_ends_at_the_limit_that_was_set() -> None:
    with gabion.Pile() as pile:
        pile.max_bytes = "128 KiB"
        with pytest.raises(gabion.LimitError, match=r"takes more than 131072 bytes"):
            pile.put(Endless())


def test_a_closed_pile_has_no_limit() -> None:
    class Closes:
        def __index__(self) -> int:
            pile.close()
            return 1 << 20

    pile = gabion.Pile()
    with pytest.raises(gabion.ClosedError):
        pile.max_bytes = Closes()
    with pytest.raises(gabion.ClosedError):
        _ = pile.max_bytes
    with pytest.raises(gabion.ClosedError):
        pile.max_bytes = "1 MiB"


def test_the_limit_is_set_beside_threads_that_put_and_remove() -> None:
    limits = [1 << 20, 2 << 20, 8 << 20]
    with gabion.Pile(max_bytes="8 MiB") as pile:
        more = until(SECONDS)

        def work() -> None:
            chooser, pointers = random.Random(), []
            while more():
                try:
                    pointers.append(pile.put(b"x" * chooser.choice((20, 700, 5000, 60_000))))
                except gabion.LimitError:
                    pile.remove_many(pointers[::2])
                    del pointers[::2]

        def steer() -> None:
            for limit in itertools.cycle(limits):
                if not more():
                    return
                pile.max_bytes = limit
                assert pile.max_bytes in limits

        run(work, work, work, steer, steer)
        pile.max_bytes = max(limits)
        pile.validate()
        check_equations(pile)
