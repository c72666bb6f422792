"""What a type checker sees of a user's program: the type of what comes back, and methods that are there."""

import subprocess
import sys
from pathlib import Path

import pytest

import gabion

PROGRAM = """
import asyncio
import io
import pickle
import zipfile
from dataclasses import dataclass
from datetime import date
from typing import IO, Any, BinaryIO, Literal, SupportsIndex, assert_type
from uuid import UUID

import gabion
from gabion.typing import Format, Size

numbers: list[SupportsIndex] = []


@dataclass
class Person:
    name: str


people: gabion.Pile[Person] = gabion.Pile(max_bytes="1 GiB")
pointer = people.put(Person("Ada"))
assert_type(people.get(pointer), Person)
assert_type(people.get(pointer, None), Person | None)
assert_type(people.get(pointer, default=None), Person | None)
assert_type(people.get_many([pointer], default=0), list[Person | int])
assert_type(people.get_many([pointer]), list[Person])
assert_type(people.pop(pointer), Person)
assert_type(people.pop(pointer, default=""), Person | str)
assert_type(list(people.values()), list[Person])
assert_type(dict(people.items()), dict[int, Person])
assert_type(gabion.Pile().get(1), Any)
assert_type(gabion.Pile().max_bytes, int)
people.max_bytes = "2 GiB"
people.max_bytes = None
anything = gabion.Pile()
anything.put("text")
anything.put(5)

sizes: gabion.Cache[str, int] = gabion.Cache("64 MiB", ttl="5 min")
assert_type(sizes["a"], int)
assert_type(sizes.get("a"), int | None)
assert_type(sizes.get("a", "none"), int | str)
assert_type(sizes.pop("a"), int)
assert_type(sizes.get_or_put("a", lambda: 5), int)
assert_type(sizes.get_or_put("a", lambda: 5, ttl=lambda made: made / 2), int)
assert_type(sizes.put("a", 1), gabion.PutResult)
assert_type(sizes.get_many(["a"]), dict[str, int])
assert_type(sizes.keys(), list[str])
assert_type(sizes.stats().hit_rate, float)
plain = gabion.Cache("64 MiB", policy="s3fifo")
plain["a"] = 1
plain[7] = "text"


async def make() -> int:
    return 5


assert_type(asyncio.run(sizes.get_or_put("b", make)), int)


@plain.memoize
def double(number: int) -> int:
    return 2 * number


@plain.memoize(ttl=60)
async def page(number: int, *, title: str = "") -> str:
    return title * number


class Shop:
    @plain.memoize(key=lambda self, number: number)
    def price(self, number: int) -> float:
        return number / 2

    @classmethod
    @plain.memoize(key=lambda cls, number: number)
    def made(cls, number: int) -> int:
        return number

    @staticmethod
    @plain.memoize
    def told(number: int) -> str:
        return str(number)


assert_type(double(5), int)
assert_type(asyncio.run(page(5, title="t")), str)
assert_type(Shop().price(5), float)
double.cache_clear()
assert_type((double.cache_discard(5), page.cache_discard(5, title="t")), tuple[bool, bool])
assert_type(Shop.price.cache_discard(Shop(), 5), bool)
assert_type(double.cache_table().name, str)
half = plain.memoize(lambda number: number / 2, ttl=lambda made: made, typed=True)
assert_type(page.cache_stats().hits, int)
assert_type(Shop().price.cache_stats().hits, int)
assert_type(Shop().price.cache_clear(), int)
assert_type(Shop.price(Shop(), 5), float)
assert_type((Shop.made(5), Shop().made(5), Shop.told(5), Shop().told(5)), tuple[int, int, str, str])
assert_type(Shop.price.cache_stats().hits, int)
assert_type(double.__name__ + Shop.price.__qualname__ + Shop().price.__name__, str)


@sizes.on_evict
def gone(key: str, value: int) -> bool:
    return True


assert_type(gone("a", 5), bool)
assert_type(sizes.on_evict(gone)("a", 5), bool)
assert_type(sizes.on_evict(None), None)


class Sessions(gabion.Cache[str, dict[str, str]]):
    def __init__(self) -> None:
        super().__init__("1 MiB")


assert_type(Sessions()["a"], dict[str, str])

with open("file", "rb") as file:
    assert_type(gabion.streams.Reader(file).read(), bytes)
    text: str = io.TextIOWrapper(gabion.streams.Reader(file)).read()
    pickle.load(gabion.streams.Reader(file))
    zipfile.ZipFile(gabion.streams.Reader(file)).namelist()
    gabion.streams.copy(gabion.streams.Reader(file), gabion.streams.Writer(io.BytesIO()))
with open("file", "wb") as target:
    io.TextIOWrapper(gabion.streams.Writer(target)).write(text)
    pickle.dump(text, gabion.streams.Writer(target))
    zipfile.ZipFile(gabion.streams.Writer(target), "w").writestr("text", text)



def takes_files(buffered: io.BufferedIOBase, binary: BinaryIO, file: IO[bytes]) -> None: ...


reader, writer = gabion.streams.Reader(io.BytesIO()), gabion.streams.Writer(io.BytesIO())
takes_files(reader, reader, reader)
takes_files(writer, writer, writer)
assert_type((reader.closed, reader.tell(), writer.write(b"")), tuple[bool, int, int])
with reader as same:
    assert_type(same, gabion.streams.Reader)
    assert_type([line for line in same], list[bytes])


def blank(mode: gabion.typing.Mode, limit: Size = "64 MiB") -> Format | None:
    return gabion.Image.new(mode, (3, 2)).format


blank(gabion.Image.new("L", (1, 1)).mode)

with gabion.memory.rent("1 MiB") as buffer, open("file", "rb", buffering=0) as raw:
    raw.readinto(buffer)
    memoryview(buffer)[:5] = bytes(buffer)[5:10]
with gabion.Image.open("photo.jpg", max_size=(150, None)) as image:
    memoryview(image)[:3] = b"rgb"
    assert_type(image.thumbnail((None, 100)).crop(range(4)), gabion.Image)
    assert_type(image == image.copy(), bool)
    image.save("small.png", compression="small", metadata=False, quality=90)
    assert_type(image.format, Literal["JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF"] | None)
    gabion.Image.open("photo.jpg", max_pixels=1e6)

times: gabion.Cache[tuple[str, None] | date | float | None, int] = gabion.Cache("1 MiB")
times[None] = times[1.5] = times[date(2026, 1, 1)] = times["user", None] = 1
keys: gabion.Cache[tuple[int, bytes] | UUID, int] = gabion.Cache(numbers[0])
pages: gabion.Table[str, Person] = sizes.table("pages", max_bytes=numbers[0])
assert_type(pages["a"], Person)
assert_type(keys.save("cache.pile") + keys.load("cache.pile", types=[Person]) + pages.size_of("a"), int)
gabion.testing.advance("1 h")
gabion.testing.advance(0.5)
gabion.numpy.install(min_bytes=numbers[0])
leaks = gabion.memory.Leaks()
calls: list[gabion.memory.Call] = [leak.stack[0] for leak in leaks]
"""
MISTAKES = {
    'gabion.Cache[str, int]("1 MiB")[5]': 'expected type "str"',
    'gabion.Cache[str, int]("1 MiB").put("a", "b")': 'expected "int"',
    'gabion.Cache("1 MiB").put("a", 1, timeout=5)': 'Unexpected keyword argument "timeout"',
    "gabion.Pile[int]().put('text')": 'expected "int"',
    "gabion.Pile().max_bytes = 1.5": "expression has type",
    "gabion.Cache('1 MiB', policy='LRU')": "incompatible type",
    'gabion.Pile("1 MiB")': "Too many positional arguments",
    "gabion.Cache[list[str], int]": '"_K" of "Cache" cannot be "list[str]"',
    'gabion.Cache[str, int]("1 MiB").get_or_put("a", lambda: "b")': '"str"',
    "gabion.Cache('1 MiB').memoize(len, ttl='soon', typo=1)": 'argument "typo"',
    "gabion.Cache('1 MiB').memoize(len).cache_discard(5)": "incompatible type",
    "gabion.Image()": "Too few arguments",
    "gabion.Image.new('L', (1, 1)).save('i.png', qualtiy=90)": 'Unexpected keyword argument "qualtiy"',
    "gabion.Image.new('L', (1, 1)).save('i.png', compression='best')": "incompatible type",
    "'text' in gabion.Pile[int]()": "Unsupported operand types for in",
    "gabion.Cache('1 MiB').on_evict(abs)('a')": 'incompatible type "str"',
    "gabion.Cache('1 MiB').on_evict(5)": "cannot be",
    "gabion.Cache('1 MiB').memoize(len)('a', 5)": "Too many arguments",
}


def check(folder: Path, program: str) -> str:
    (folder / "program.py").write_text(program)
    source = Path(gabion.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "program.py"],
        cwd=folder,
        env={"MYPYPATH": str(source), "PATH": ""},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_what_a_checker_sees(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert check(tmp_path, PROGRAM).startswith("Success")
    told = check(tmp_path, "import gabion\n" + "".join(f"{line}\n" for line in MISTAKES))
    for number, expected in enumerate(MISTAKES.values(), 2):
        assert any(line.startswith(f"program.py:{number}:") and expected in line for line in told.splitlines()), told


def test_classes_take_types_at_run_time_too() -> None:
    assert gabion.Pile[int].__origin__ is gabion.Pile
    with gabion.Cache[str, int]("1 MiB") as cache:
        cache["a"] = 1
        assert type(cache) is gabion.Cache

    class Sessions(gabion.Cache[str, dict]):
        pass

    assert Sessions.__mro__[1] is gabion.Cache
    with Sessions("1 MiB") as sessions:
        sessions["a"] = {}
        assert list(sessions) == ["a"]
