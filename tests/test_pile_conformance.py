"""What stores of this kind have always been tested for, and what some of them got wrong.

| behaviour | tests |
|---|---|
| a new store is empty, its figures are zero | here: a_new_pile |
| one object, two objects, equality of copies | here: one_object, two_objects |
| a pointer that was never given out, a deleted one | test_pile_pointers |
| the last object's end gives all memory back | here: after_the_last_remove |
| clear | here: clear; test_pile_interface |
| checkerboards: every second, every third object removed | here: checkerboards |
| objects of mixed and growing sizes, one thread and many | here: mixed_and_growing_sizes; test_pile_threads |
| settings and limits | test_pile_interface, test_pile_limits |
| put, read, delete, read again over many blocks | here: put_read_delete_read_over_many_blocks |
| rich records in bulk | here: rich_records |
| reserve, growth in place, moving out, moving back, removal while moved | here: moving_*; test_pile_interface |
| texts of all scripts and lengths, bytes of all lengths | here: texts, lengths |
| iteration gives each object once, moved ones too | here: iteration; test_pile_interface, test_pile_threads |
| the same number never means two objects | test_pile_pointers |
| room is used again for the same size, and for others when empty | test_pile_footprint, test_pile_limits |
| a replace that finds no room leaves the old object whole | test_pile_limits: out_of_space_in_replace |
| the limit holds beside threads, and a busy part of the pile is no lack of room | test_pile_threads: the_limit |
| figures asked for while the pile ends | test_pile_threads: ending_beside_readers_and_writers |
| room that is given out again shows nothing of whoever had it | here: bytes_of_others |
"""

import random
import threading
from decimal import Decimal
from typing import Any

import pytest
from model import LONG, Plain, check_against, check_equations, person

import gabion


def test_a_new_pile_is_empty_and_its_figures_are_zero() -> None:
    stats = gabion.Pile().stats()
    limit, figures = stats.max_bytes, stats.as_dict()
    assert limit > 0
    assert figures.pop("max_bytes") == limit
    assert not any(figures[name] for name in ("objects", "used_bytes", "away_objects", "large_objects", "types"))


def test_one_object_and_two_objects(pile: gabion.Pile) -> None:
    first = pile.put(person(1))
    assert (len(pile), pile.stats().objects) == (1, 1)
    assert pile.get(first) == person(1)
    second = pile.put({"charges": [Plain(amount=Decimal("1.5"), note="n")] * 9})
    assert pile.get(second)["charges"][8].amount == Decimal("1.5")
    check_against(pile, {first: person(1), second: pile.get(second)})


@pytest.mark.parametrize("size", [10, 900, 5000, 2_000_000])
def test_after_the_last_remove_nothing_is_held(pile: gabion.Pile, size: int) -> None:
    pointers = [pile.put(b"x" * size) for _ in range(20)]
    for pointer in pointers:
        pile.remove(pointer)
        with pytest.raises(gabion.PointerError):
            pile.get(pointer)
    pile.compact()
    stats = pile.stats()
    assert (stats.objects, stats.used_bytes, stats.reserved_bytes) == (0, 0, 0)


def test_clear_empties_and_refuses_old_pointers(pile: gabion.Pile) -> None:
    pointers = pile.put_many(person(i) for i in range(1000))
    pile.clear()
    assert (len(pile), pile.stats().reserved_bytes) == (0, 0)
    assert pile.get_many(pointers, None) == [None] * 1000


@pytest.mark.parametrize("every", [2, 3, 5, 16])
def test_checkerboards(pile: gabion.Pile, every: int) -> None:
    chooser = random.Random(every)
    values = [
        b"%d" % i + b"x" * chooser.choice((12, 52, chooser.randrange(50_000) if i % 20 == 0 else 200))
        for i in range(4000)
    ]
    values += [bytes([i]) * chooser.randrange(70_000, 1_300_000) for i in range(20)]
    model = {}
    for number, value in enumerate(values):
        pointer = pile.put(value)
        if number % every:
            model[pointer] = value
        else:
            pile.remove(pointer)
            assert pointer not in pile
    check_against(pile, model)
    for number, pointer in enumerate(list(model)):
        if number % every == 0:
            assert pile.pop(pointer) == model.pop(pointer)
    check_against(pile, model)
    fresh = {pile.put(value): value for value in values[:2000]}
    check_against(pile, model | fresh)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("order", ["random", "growing", "shrinking"])
def test_mixed_and_growing_sizes(pile: gabion.Pile, threads: int, order: str) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            chooser = random.Random(seed)
            sizes = [chooser.randrange(256) for _ in range(1000)] + [chooser.randrange(8192) for _ in range(250)]
            sizes += [chooser.randrange(24_000) for _ in range(100)] + [chooser.randrange(200_000) for _ in range(15)]
            if order == "random":
                chooser.shuffle(sizes)
            else:
                sizes.sort(reverse=order == "shrinking")
            own: dict[int, bytes] = {}
            for number, size in enumerate(sizes):
                value = bytes([size % 256, seed]) * (size // 2)
                own[pile.put(value)] = value
                if number > len(sizes) // 3 and chooser.randrange(3) == 0:
                    pointer = chooser.choice(list(own)[-50:])
                    assert pile.pop(pointer) == own.pop(pointer)
            every.update(own)
        except BaseException as error:
            errors.append(error)

    every: dict[int, bytes] = {}
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors
    check_against(pile, every)


def test_put_read_delete_read_over_many_blocks(pile: gabion.Pile) -> None:
    rows = 60_000 if LONG else 15_000
    values = [{"id": i, "text": "row " * (i % 200), "amount": Decimal(i) / 100} for i in range(rows)]
    pointers = pile.put_many(values)
    assert pile.stats().blocks >= 2
    assert pile.get_many(pointers) == values
    pile.remove_many(pointers[::2])
    assert pile.get_many(pointers[1::2]) == values[1::2]
    assert pile.get_many(pointers[::2], None) == [None] * (rows // 2)
    pile.compact()
    assert pile.get_many(pointers[1::2]) == values[1::2]
    check_equations(pile)


def test_rich_records(pile: gabion.Pile) -> None:
    def record(i: int) -> Any:
        names = {lang: {"name": f"{lang} {i}", "text": "long text " * 3} for lang in ("eng", "deu", "日本")}
        parts = [Plain(sku=f"{i}-{j}", names=names, prices=[Decimal(p) / 7 for p in range(6)]) for j in range(3)]
        return Plain(id=i, parts=parts, person=person(i), main=parts[0])

    pointers = [pile.put(record(i)) for i in range(2000)]
    found = pile.get(pointers[77])
    assert found == record(77)
    assert found.main is found.parts[0]
    assert found.parts[0].names is found.parts[2].names
    assert pile.stats().types <= 20


@pytest.mark.parametrize("make", [lambda n: b"x" * n, lambda n: "ü" * (n // 2), lambda n: Plain(load=b"x" * n, end=n)])
def test_moving_out_and_back(pile: gabion.Pile, make: Any) -> None:
    pointer = pile.put(make(2000))
    small = pile.put(make(100))
    for size in (3000, 10_000, 100_000, 2_000_000, 500, 3000, 100):
        for moved in (pointer, small):
            pile.replace(moved, make(size))
            assert pile.get(moved) == make(size)
            check_equations(pile)
    pile.replace(small, make(50))
    pile.compact()
    assert pile.stats().away_objects <= 1, "small is back in its own place"
    assert pile.stats().used_bytes < 2500
    pile.replace(small, make(5000))
    pile.remove(small)
    pile.remove(pointer)
    pile.compact()
    assert pile.stats().reserved_bytes == 0


def test_moving_three_hundred_objects_up_and_down(pile: gabion.Pile) -> None:
    sizes = list(range(0, 3000, 10))
    model = {pile.put(b"s" * size): b"s" * size for size in sizes}
    for factor in (1.5, 0.5, 3, 0, 1, 400, 1):
        for pointer, size in zip(model, sizes):
            model[pointer] = b"r" * int(size * factor)
            pile.replace(pointer, model[pointer])
        pile.validate()
    check_against(pile, model)


def test_any_type_after_any_type_behind_one_pointer(pile: gabion.Pile) -> None:
    values: list[Any] = [
        None,
        5,
        "text",
        b"x" * 3000,
        person(1),
        [1] * 500,
        {"k": b"y" * 2_000_000},
        (),
        1.5,
        "z" * 1010,
    ]
    pointer = pile.put(0)
    for before in values:
        for after in values:
            pile.replace(pointer, before)
            pile.replace(pointer, after)
            assert pile.get(pointer) == after
    assert len(pile) == 1
    pile.validate()


@pytest.mark.parametrize("text", ["a", "ü", "久", "🪨", "aü久🪨", "\0", "\ud800", "עברית", "नमस्ते"])
def test_texts_of_all_scripts_and_lengths(pile: gabion.Pile, text: str) -> None:
    for length in (*range(40), 100, 127, 128, 255, 256, 1000, 1024, 16_383, 16_384, 65_536, 300_000):
        pointer = pile.put(text * length)
        assert pile.get(pointer) == text * length
        pile.remove(pointer)


def test_lengths_in_falling_order_with_removals(pile: gabion.Pile) -> None:
    model: dict[int, Any] = {}
    for length in range(3000, 0, -1):
        value: Any = b"b" * length if length % 2 else "s" * length
        model[pile.put(value)] = value
        if length % 3 == 0:
            pointer = next(iter(model))
            assert pile.pop(pointer) == model.pop(pointer)
    check_against(pile, model)


@pytest.mark.parametrize("count", [0, 1, 723, 1500, 250_000 if LONG else 30_000])
def test_iteration_gives_each_object_exactly_once(pile: gabion.Pile, count: int) -> None:
    pointers = pile.put_many(bytes(4 + i * 37 % 512) for i in range(count))
    for pointer in pointers[::3]:
        pile.replace(pointer, b"moved" * 300)
    assert sorted(pile) == sorted(pointers)
    assert len(list(pile)) == count


def test_bytes_of_others_are_never_seen_behind_an_object(pile: gabion.Pile) -> None:
    secret = b"secret" * 40
    for size in (250, 3000, 1_200_000):
        pile.remove_many([pile.put(secret[:6] * (size // 6)) for _ in range(50)])
        for pointer in [pile.put(b"", reserve=size) for _ in range(50)]:
            pile.replace(pointer, b"abc")
            assert bytes(pile.view(pointer)) == pile.get(pointer) == b"abc"
            assert pile.size_of(pointer) < 10
