"""Arguments are read alike wherever a call takes one: flags, whole numbers, sizes, functions, iterables, defaults."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gabion
from gabion import Cache, Image, _native, memory


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    memory.configure(trim_malloc=None, arenas=None)


def photo() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30, 20), 128).save(file, format="JPEG")
    return file.getvalue()


PHOTO = photo()


def group() -> memory.Group:
    return memory.rent_group(90, row_bytes=10)


class Seven:
    """A whole number, though no int."""

    def __index__(self) -> int:
        return 7


class Broken:
    def __index__(self) -> int:
        raise OSError("no number today")


# --- flags -----------------------------------------------------------------------------------------

# Every place that takes one, by the name that an error calls it.
FLAGS: list[tuple[str, Callable[[Any], Any]]] = [
    ("scaled", lambda flag: Image.open(PHOTO, scaled=flag)),
    ("upright", lambda flag: Image.open(PHOTO, upright=flag)),
    ("partial", lambda flag: Image.open(PHOTO, partial=flag)),
    ("contiguous", lambda flag: Image.new("L", (2, 2), contiguous=flag)),
    ("progressive", lambda flag: Image.open(PHOTO).save(io.BytesIO(), format="JPEG", progressive=flag)),
    ("clean", lambda flag: memory.rent(4, clean=flag)),
    ("contiguous", lambda flag: memory.rent(4, contiguous=flag)),
    ("clean", lambda flag: memory.rent_group(4, clean=flag)),
    ("all", lambda flag: memory.trim(all=flag)),
    ("all", lambda flag: memory.trim(flag)),
    ("trim_malloc", lambda flag: memory.configure(trim_malloc=flag)),
    ("copy", lambda flag: Image.new("L", (2, 2)).__dlpack__(copy=flag)),
]


@pytest.mark.parametrize(("name", "take"), FLAGS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(FLAGS)])
def test_flags(name: str, take: Callable[[Any], Any]) -> None:
    for flag in (True, False, 1, 0):
        take(flag)
    for wrong in (2, -1, 10**30, 1.0, "no", [], b"1"):
        with pytest.raises(TypeError) as refused:
            take(wrong)
        assert str(refused.value) == f"{name}={wrong!r}: pass True or False"
    if name not in ("trim_malloc", "copy"):  # where None stands for the default
        with pytest.raises(TypeError, match=f"^{name}=None: pass True or False$"):
            take(None)


def test_flags_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    for _, take in FLAGS:
        for flag in (numpy.True_, numpy.False_, numpy.int8(1)):
            take(flag)


def test_flags_say_what_they_said() -> None:
    with memory.rent(4096, clean=1) as buffer:  # type: ignore[arg-type]
        assert bytes(memoryview(buffer)) == bytes(4096)
    memory.configure(trim_malloc=0)  # type: ignore[arg-type]
    assert memory.stats().trim_malloc is False
    assert Image.new("L", (3000, 3000), contiguous=1).is_contiguous  # type: ignore[arg-type]
    assert Image.new("L", (3000, 3000), contiguous=0).is_contiguous is False  # type: ignore[arg-type]


# --- numbers ---------------------------------------------------------------------------------------

# What takes a whole number, 1 and 7 among those allowed (but arenas: powers of two).
WHOLE: dict[str, Callable[[Any], Any]] = {
    "priority": lambda number: Cache("1 MiB").put("k", 1, priority=number),
    "priority, made": lambda number: Cache("1 MiB").get_or_put("k", lambda: 1, priority=number),
    "priority, memoize": lambda number: Cache("1 MiB").memoize(priority=number),
    "row": lambda number: Image.new("L", (2, 9)).row(number),
    "row, group": lambda number: group().row(number),
    "chunk": lambda number: gabion.streams.Reader(io.BytesIO(), chunk=number),
    "nbytes": lambda number: memory.rent(number),
    "reserve": lambda number: gabion.Pile().put(1, reserve=number),
}
# What takes a measure of an image.
MEASURES: dict[str, Callable[[Any], Any]] = {
    "size": lambda number: Image.new("L", (number, 2)),
    "max_size": lambda number: Image.open(PHOTO, max_size=number),
    "color": lambda number: Image.new("L", (1, 1), number),
    "box": lambda number: Image.new("L", (9, 9)).crop((0, 0, number, 2)),
    "at": lambda number: Image.new("L", (9, 9)).paste(Image.new("L", (1, 1)), (number, 0)),
    "quality": lambda number: Image.new("L", (1, 1)).save(io.BytesIO(), format="JPEG", quality=number),
}


@pytest.mark.parametrize("name", [*WHOLE, *MEASURES])
def test_whole_numbers(name: str) -> None:
    take = {**WHOLE, **MEASURES}[name]
    for number in (1, 7, Seven()):
        take(number)
    for wrong in (True, False, 1.5, {}, object()):
        with pytest.raises(TypeError) as refused:
            take(wrong)
        # No text of PyO3's own.
        assert "argument '" not in str(refused.value)
        assert "cannot be interpreted" not in str(refused.value)
    with pytest.raises(OSError, match="no number today"):
        take(Broken())


@pytest.mark.parametrize("name", WHOLE)
def test_floats_are_no_whole_numbers(name: str) -> None:
    with pytest.raises(TypeError):
        WHOLE[name](1.0)


@pytest.mark.parametrize("name", MEASURES)
def test_but_measures_of_images_may_be_computed(name: str) -> None:
    MEASURES[name](7.0)
    assert Image.new("L", (3, 2)).rotate(90.0).size == (2, 3)


def test_whole_numbers_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    for take in {**WHOLE, **MEASURES}.values():
        take(numpy.uint8(7))
    for take in WHOLE.values():
        with pytest.raises(TypeError):
            take(numpy.float64(1.0))
        with pytest.raises(TypeError):
            take(numpy.True_)


# What is to be passed, as errors say it.
ROWS = "a group of 9 rows has 0 to 8, and -9 to -1 from its end"
GAP = "pass a number from 1.0 on, or None for the filter alone"
ARENAS = "pass a whole number, a power of two from 1 to 256"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda image: image.save(io.BytesIO(), "JPEG"), 'save() takes options by name: format="JPEG"'),
        (lambda image: image.save("a.jpg", 5), "save() takes options by name: format=5"),
        (lambda image: image.resize(10, 12), "size is one pair: resize((10, 12))"),
        (lambda image: image.resize((10, 12), "box"), 'resize() takes options by name: filter="box"'),
        (lambda image: image.crop(0, 0, 3, 3), "box is one tuple: crop((0, 0, 3, 3))"),
        (
            lambda _: gabion.Pile(max_size=5),
            'Pile() has no max_size: it takes max_bytes, as in Pile(max_bytes="4 GiB"), name, and path with types, '
            "read_only and create",
        ),
        (
            lambda _: gabion.Cache(maxsize=128),
            'Cache() has no maxsize: it takes max_bytes, as in Cache("64 MiB"), which counts bytes and not entries, '
            "and ttl, idle, name and policy",
        ),
        (
            lambda _: gabion.memory.configure(max_bytes=5),
            "configure() has no max_bytes: it takes pool_bytes, arenas, trim_period, allocation_limit, total_limit and "
            "trim_malloc",
        ),
        (lambda _: gabion.Pile(name=5), "name must be a str, not int"),
    ],
)
def test_habits_of_other_libraries_are_told_how_it_is_written_here(call: Any, told: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(told)}$"):
        call(Image.new("RGB", (20, 20)))


PRIORITY = "pass a whole number from -128 to 127"
POLICIES = "pass 'default', 'lru', 'fifo' or 's3fifo'"
PAIRS = "what is put is passed as a mapping, or as pairs of a key and a value"


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: group().row(1.0), TypeError, f"row 1.0: pass a whole number; {ROWS}"),
        (lambda: group().row(True), TypeError, f"row True: pass a whole number; {ROWS}"),
        (lambda: group().row(2**70), IndexError, f"row {2**70}: {ROWS}"),
        (
            lambda: Image.new("L", (1, 1)).row("x"),
            TypeError,
            "row 'x': pass a whole number; an image of 1 row has 0 to 0, and -1 to -1 from its end",
        ),
        (lambda: Cache("1 MiB").put("k", 1, priority=True), TypeError, f"priority=True: {PRIORITY}"),
        (lambda: Cache("1 MiB").put("k", 1, priority=2**70), ValueError, f"priority={2**70}: {PRIORITY}"),
        (lambda: memory.configure(arenas=True), TypeError, f"arenas=True: {ARENAS}"),
        (lambda: memory.configure(arenas=3), ValueError, f"arenas=3: {ARENAS}"),
        (lambda: Image.new("L", (1, 1)).resize((1, 1), reducing_gap="x"), TypeError, f"reducing_gap='x': {GAP}"),
        (lambda: Image.open(PHOTO, reducing_gap=True), TypeError, f"reducing_gap=True: {GAP}"),
        (lambda: Image.new("L", (1, 1)).thumbnail(1, reducing_gap=0.5), ValueError, f"reducing_gap=0.5: {GAP}"),
        (lambda: Cache("1 MiB", policy=5), TypeError, f"policy=5: {POLICIES}"),
        (lambda: Cache("1 MiB", policy=None), TypeError, f"policy=None: {POLICIES}"),
        (lambda: Cache("1 MiB", policy="LRU"), ValueError, f"policy='LRU': {POLICIES}"),
        (lambda: Cache("1 MiB").drop_table(5), TypeError, "a table's name is a str, not int"),
        (lambda: Cache("1 MiB").table([]), TypeError, "a table's name is a str, not list"),
    ],
)
def test_what_is_refused_is_told_with_what_is_allowed(
    call: Callable[[], Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as refused:
        call()
    assert str(refused.value) == told


# --- sizes -----------------------------------------------------------------------------------------


def test_a_size_is_refused_with_all_units() -> None:
    units = (
        r"pass bytes \(0 or more\) or text such as \"4 GiB\" \(B, KiB to PiB or K to P of 1024, or kB to PB of 1000\)$"
    )
    for wrong in ("4 E", "1__0", "_1", "1_", "1e400", "nan", "inf", "", "GiB", "4 EB", "many", "-1", -1):
        with pytest.raises(ValueError, match=rf"^nbytes={wrong!r}: not a size; {units}"):
            memory.rent(wrong)


def test_units_of_sizes() -> None:
    for power, unit in enumerate("kmgtp", 1):
        for written in (unit, unit.upper()):
            assert _native._size("size", f"2 {written}B") == 2 * 1000**power
            assert _native._size("size", f"1.5 {written}iB") == 3 * 512 * 1024 ** (power - 1)
            # A letter alone is of 1024.
            assert _native._size("size", f"3{written}") == _native._size("size", f"3 {written}") == 3 * 1024**power
    assert _native._size("size", "4 GB") == 4_000_000_000
    assert (
        _native._size("size", "1_000_000")
        == _native._size("size", "1e6")
        == _native._size("size", "1e3 kB")
        == 1_000_000
    )
    assert [_native._size("size", one) for one in ("0.5 KiB", ".5 KiB", "512.", "512.00 B", "+512")] == [512] * 5
    # What is counted in KiB or more is whole by itself.
    assert [_native._size("size", one) for one in ("1.1 GiB", "0.3 K", "1.0001 kB")] == [1_181_116_006, 307, 1000]
    assert _native._size("size", str((1 << 63) - 1)) == (1 << 63) - 1
    assert _native._size("size", "70 B") == _native._size("size", "70") == 70
    assert "KiB to PiB" in (memory.__doc__ or "")
    assert "4 GB" in (memory.__doc__ or "")


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("0.9", "0.9"),
        ("0.5", "0.5"),
        ("1.7 B", "1.7"),
        ("1e-3", "0.001"),
        ("0.0001 K", "0.1024"),
    ],
)
def test_text_that_is_no_whole_number_of_bytes(text: str, bytes: str) -> None:
    takers: dict[str, Callable[[], Any]] = {
        "nbytes": lambda: memory.rent(text),
        "total_limit": lambda: memory.configure(total_limit=text),
        "max_bytes": lambda: Cache(text),
    }
    for name, take in takers.items():
        told = f"{name}={text!r}: {bytes} bytes, which is no whole number; pass a whole number of bytes, or text that"
        with pytest.raises(ValueError, match=f"^{re.escape(told)} gives one$"):
            take()
    assert memory.stats().total_limit is None


# --- functions and iterables -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda cache: cache.memoize(key=5),
            "memoize(key=...) takes a function of the same arguments that returns a key, not int",
        ),
        (
            lambda cache: cache.memoize(60),
            "memoize() keeps the results of a function, not of int; pass times by name, as in ttl=60",
        ),
        (lambda cache: cache.change("k", 5), "change() takes a function of the value that is there, not int"),
        (lambda cache: cache.change("absent", 5, 1), "change() takes a function of the value that is there, not int"),
        (
            lambda cache: Image.new("L", (1, 1)).process_rows(None),
            "process_rows() takes a function of a row's number and its bytes, not NoneType",
        ),
        (lambda cache: cache.get_many(5), "keys are passed as an iterable of them, not int"),
        (lambda cache: cache.remove_many(5), "keys are passed as an iterable of them, not int"),
        (lambda cache: cache.put_many(5), f"{PAIRS}, not int"),
        (lambda cache: cache.put_many([1]), f"{PAIRS}, not as list of int"),
        (lambda cache: cache.update(5), f"{PAIRS}, not int"),
        (lambda cache: gabion.Pile().put_many(5), "objects are passed as an iterable of them, not int"),
        (
            lambda cache: gabion.Pile().get_many(5),
            "pointers are passed as an array('Q') or another iterable of ints, not int",
        ),
    ],
)
def test_what_was_expected_and_what_came(call: Callable[[Cache], Any], told: str) -> None:
    cache = Cache("1 MiB")
    cache["k"] = 1
    with pytest.raises(TypeError) as refused:
        call(cache)
    assert str(refused.value) == told
    assert cache["k"] == 1


def test_pairs_of_another_length_and_errors_of_iterators_are_told() -> None:
    cache = Cache("1 MiB")

    def broken() -> Iterator[tuple[str, int]]:
        yield "a", 1
        raise OSError("the wire broke")

    with pytest.raises(ValueError, match=r"^what is put is passed .*: too many values to unpack"):
        cache.put_many([("a", 1, 2)])  # type: ignore[list-item]
    for call in (cache.put_many, cache.get_many, cache.remove_many, gabion.Pile().put_many):
        with pytest.raises(OSError, match="the wire broke"):
            call(broken())  # type: ignore[arg-type]


# --- defaults --------------------------------------------------------------------------------------


def test_defaults_go_by_place_and_by_name() -> None:
    with gabion.Pile() as pile:
        gone = pile.put(1)
        pile.remove(gone)
        kept = pile.put(2)
        for default in (None, "none", ..., gone):
            assert pile.get(gone, default) is pile.get(gone, default=default) is default
            assert pile.pop(gone, default) is pile.pop(gone, default=default) is default
            assert pile.get_many([gone, kept], default=default) == pile.get_many([gone, kept], default) == [default, 2]
        assert pile.get(kept, default=None) == pile.pop(kept, default=None) == 2
        for call in (pile.get, pile.pop):
            with pytest.raises(gabion.PointerError):
                call(gone)
            with pytest.raises(TypeError, match="default"):
                call(gone, 1, default=2)
            with pytest.raises(TypeError, match="unexpected keyword argument 'defualt'"):
                call(gone, defualt=2)
            with pytest.raises(TypeError, match="ptr"):
                call(ptr=gone)
    cache = Cache("1 MiB")
    assert cache.get("absent", default=1) == cache.pop("absent", default=1) == 1
    with pytest.raises(TypeError, match=r"get\(\) takes default once"):
        cache.get("absent", 1, default=2)  # type: ignore[call-overload]
