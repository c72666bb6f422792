"""gabion.memory.track(): what is left, and where it was rented."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import gabion.memory as memory


def rent_here(size: int) -> memory.Buffer:
    return memory.rent(size)  # the line that a report names


LINE = rent_here.__code__.co_firstlineno + 1


def test_it_tells_what_is_left_and_where_it_was_rented() -> None:
    with memory.track() as leaks:
        assert list(leaks) == []
        kept = rent_here(100)
        rent_here(200)
        with memory.rent(300):
            pass
        group = memory.rent_group("9 MiB")
        released = memory.rent(400)
        released.release()
    assert [(leak.kind, leak.nbytes) for leak in leaks] == [("Buffer", 100), ("Group", 9 << 20)]
    assert leaks.nbytes == 100 + (9 << 20)
    first, second = leaks
    assert first.where == f"{__file__}:{LINE} in rent_here"
    assert [call.function for call in first.stack[:2]] == ["rent_here", sys._getframe().f_code.co_name]
    assert Path(second.stack[0].file).samefile(__file__)
    text = str(leaks)
    assert text.startswith(
        f"2 left, {leaks.nbytes} bytes:\n  Buffer of 100 bytes, rented at {__file__}:{LINE} in rent_here\n"
    )
    assert "Group of 9437184 bytes" in text
    assert "Leak(kind='Buffer', nbytes=100" in repr(first)
    kept.release()
    group.release()
    assert len(leaks) == 2, "what was found stays"


def test_nothing_left() -> None:
    with memory.track() as leaks:
        memory.rent(10)
    assert not leaks
    assert leaks == []
    assert str(leaks) == "nothing is left"


def test_a_view_or_a_tensor_keeps_a_buffer_on_the_list() -> None:
    with memory.track() as leaks:
        view = memoryview(memory.rent(10))
        capsule = memory.rent(20).__dlpack__()
        row = memory.rent_group(3000, row_bytes=30).row(2)
    assert [leak.nbytes for leak in leaks] == [10, 20, 3000]
    del view, capsule, row


def test_nested() -> None:
    before = memory.rent(1)
    with memory.track() as outer:
        first = memory.rent(2)
        with memory.track() as inner:
            second = memory.rent(3)
            third = memory.rent(4)
        third.release()
        fourth = memory.rent(5)
    assert [leak.nbytes for leak in inner] == [3, 4]
    assert [leak.nbytes for leak in outer] == [2, 3, 5]
    with memory.track() as later:
        pass
    assert later == []
    del before, first, second, fourth


def test_interleaved() -> None:
    one, two = memory.track(), memory.track()
    first_leaks = one.__enter__()
    a = memory.rent(1)
    second_leaks = two.__enter__()
    b = memory.rent(2)
    one.__exit__(None, None, None)
    c = memory.rent(3)
    two.__exit__(None, None, None)
    assert [leak.nbytes for leak in first_leaks] == [1, 2]
    assert [leak.nbytes for leak in second_leaks] == [2, 3]
    del a, b, c


def test_all_threads_count() -> None:
    kept: list[memory.Buffer] = []

    def work(size: int) -> None:
        kept.append(memory.rent(size))
        memory.rent(1000 + size)

    with memory.track() as leaks:
        threads = [threading.Thread(target=work, args=(size,)) for size in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(leak.nbytes for leak in leaks) == list(range(1, 9))
    assert {leak.stack[0].function for leak in leaks} == {"work"}


def test_after_an_exception_it_still_tells() -> None:
    with pytest.raises(ZeroDivisionError), memory.track() as leaks:
        kept = memory.rent(10)
        raise ZeroDivisionError
    assert [leak.nbytes for leak in leaks] == [10]
    del kept


def test_deep_stacks_are_cut() -> None:
    def deep(levels: int) -> memory.Buffer:
        return deep(levels - 1) if levels else memory.rent(10)

    with memory.track() as leaks:
        kept = deep(100)
    assert len(leaks[0].stack) == 32
    del kept


def test_files_and_functions_whose_names_are_no_text() -> None:
    source = "import gabion.memory\nrent_here = lambda: gabion.memory.rent(10)"
    names: dict[str, Any] = {}
    exec(compile(source, os.fsdecode(b"/\xff/program.py"), "exec"), names)
    rent = names["rent_here"]
    rent.__code__ = rent.__code__.replace(co_name="\udcff", co_qualname="\udcff")
    with memory.track() as leaks:
        kept = rent()
    assert leaks[0].stack[0] == memory.Call("/\\udcff/program.py", 2, "\\udcff")
    del kept


def test_off_it_notes_nothing() -> None:
    kept = [memory.rent(10) for _ in range(100)]
    with memory.track() as leaks:
        pass
    assert leaks == []
    del kept
