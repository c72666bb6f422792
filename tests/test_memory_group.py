"""gabion.memory.Group: blocks and rows."""

import gc
import pickle

import pytest

import gabion
import gabion.memory as memory

BLOCK = 4 << 20


@pytest.mark.parametrize("size", [0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 9 * BLOCK + 12345])
@pytest.mark.parametrize("clean", [False, True])
def test_blocks_hold_what_was_asked_for(size: int, clean: bool) -> None:
    for _ in range(2):  # fresh, and warm
        with memory.rent_group(size, clean=clean) as group:
            assert group.nbytes == size
            lengths = [len(block) for block in group]
            assert sum(lengths) == size
            assert lengths == [BLOCK] * (size // BLOCK) + ([size % BLOCK] if size % BLOCK else [])
            assert len(group) == len(group.blocks) == len(lengths)
            for number, block in enumerate(group.blocks):
                with memoryview(block) as view:
                    if clean:
                        assert bytes(view).count(0) == len(block)
                    view[:] = bytes([number + 1]) * len(block)
            for number, block in enumerate(group):
                assert bytes(block).count(number + 1) == len(block)
            assert group.row_bytes is group.rows is None


def test_a_block_in_a_with_statement_stays_with_its_group() -> None:
    with memory.rent_group(BLOCK + 1) as group:
        with group[0] as block, memoryview(block) as view:
            view[0] = 7
        assert not block.released
        assert memoryview(block)[0] == 7
        with pytest.raises(KeyError), group[1]:
            raise KeyError
        with pytest.raises(BufferError, match="it is released with the group"):
            block.release()
    assert block.released


@pytest.mark.parametrize("row", [1, 7, 1000, 120_000, 2_400_000, BLOCK, BLOCK + 1, 9_000_000])
def test_no_row_is_cut(row: int) -> None:
    size = max(row * 3, 9_500_000 // row * row)
    with memory.rent_group(size, row_bytes=row) as group:
        assert (group.row_bytes, group.rows, group.nbytes) == (row, size // row, size)
        assert sum(map(len, group)) == size
        assert all(len(block) % row == 0 for block in group)
        assert all(len(block) <= max(BLOCK, row) for block in group)
        numbers = sorted({0, 1, 2, size // row // 2, size // row - 2, size // row - 1})
        for y in numbers:
            with group.row(y) as view:
                assert (view.nbytes, view.format, view.readonly) == (row, "B", False)
                view[0] = view[-1] = y % 251
        offset = 0
        content = {}
        for block in group:
            for y in numbers:
                if offset <= y * row < offset + len(block):
                    content[y] = memoryview(block)[y * row - offset]
            offset += len(block)
        assert content == {y: y % 251 for y in numbers}
        with group.row(-1) as last, group.row(size // row - 1) as same:
            assert last[0] == same[0]


def test_the_last_row_may_be_short() -> None:
    with memory.rent_group(1050, row_bytes=100) as group:
        assert group.rows == 11
        assert [group.row(y).nbytes for y in range(11)] == [100] * 10 + [50]


def test_rows_and_blocks_that_are_not_there() -> None:
    group = memory.rent_group("9 MiB", row_bytes=1 << 20)
    for y in (9, -10, 2**40, -(2**40)):
        with pytest.raises(IndexError, match=f"^row {y}: a group of 9 rows has 0 to 8, and -9 to -1 from its end$"):
            group.row(y)
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"^block {index}: a group of 3 blocks has 0 to 2, and -3 to -1 from"):
            group[index]
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError):
            group.row(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="row_bytes"):
        memory.rent_group(100).row(0)
    with pytest.raises(IndexError):
        memory.rent_group(0, row_bytes=10).row(0)
    for row_bytes in (0, -1, "x"):
        with pytest.raises(ValueError, match="row_bytes"):
            memory.rent_group(100, row_bytes=row_bytes)
    with pytest.raises(TypeError, match="row_bytes"):
        memory.rent_group(100, row_bytes=2.5)  # type: ignore[arg-type]


def test_it_is_a_sequence_of_buffers() -> None:
    group = memory.rent_group("9 MiB")
    assert group.blocks is group.blocks
    assert list(group) == list(group.blocks) == [group[0], group[1], group[-1]]
    assert group[1:] == group.blocks[1:]
    assert group[0] in group
    assert all(isinstance(block, memory.Buffer) for block in group)
    assert bool(memory.rent_group(0))
    assert "3 blocks" in repr(group)
    assert b"".join(group)[:10] == bytes(memoryview(group[0])[:10])
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(group)
    with pytest.raises(TypeError):
        memory.Group()


def test_release_counts_the_views_of_all_blocks_and_rows() -> None:
    group = memory.rent_group("9 MiB", row_bytes=1000)
    blocks = group.blocks
    views = [memoryview(blocks[0]), memoryview(blocks[2]), group.row(3)]
    with pytest.raises(BufferError, match="3 views"):
        group.release()
    assert not group.released
    views.pop().release()
    views.pop().release()
    with pytest.raises(BufferError, match="1 view "):
        group.release()
    views.clear()
    group.release()
    assert group.released
    assert blocks[0].released
    assert (group.nbytes, group.row_bytes) == (9 << 20, 1000)
    for use in (
        lambda: len(group),
        lambda: group.blocks,
        lambda: group[0],
        lambda: iter(group),
        lambda: group.row(0),
        lambda: group.__enter__(),
        lambda: memoryview(blocks[1]),
        lambda: len(blocks[1]),
    ):
        with pytest.raises(gabion.ClosedError, match="released"):
            use()
    assert "released" in repr(group)
    group.release()


def test_a_block_is_released_with_its_group_only() -> None:
    group = memory.rent_group("5 MiB")
    with pytest.raises(BufferError, match=r"Group\.release"):
        group[0].release()
    assert not group.released
    assert not group[0].released


def test_a_block_a_row_or_a_view_keeps_all_of_it() -> None:
    gc.collect()
    before = memory.stats().live
    group = memory.rent_group("9 MiB", row_bytes=1000)
    assert memory.stats().live == before + 3
    block, row = group[1], group.row(0)
    row[:4] = b"kept"
    del group
    gc.collect()
    assert memory.stats().live == before + 3
    with memory.rent_group("9 MiB") as other:
        for part in other:
            memoryview(part)[:4] = b"lost"
    assert bytes(row[:4]) == b"kept"
    del row
    assert memory.stats().live == before + 3
    del block
    gc.collect()
    assert memory.stats().live == before


def test_with() -> None:
    before = memory.stats().live
    with memory.rent_group("5 MiB") as group:
        assert memory.stats().live == before + 2
    assert group.released
    assert memory.stats().live == before
    with pytest.raises(BufferError), memory.rent_group("5 MiB") as group:
        view = memoryview(group[0])
    view.release()
    group.release()
    assert memory.stats().live == before


def test_blocks_speak_all_protocols() -> None:
    numpy = pytest.importorskip("numpy")
    with memory.rent_group("5 MiB", clean=True) as group:
        for block in group:
            array = numpy.from_dlpack(block)
            array += 1
            assert numpy.asarray(block).sum() == len(block)
            assert block.__array_interface__["shape"] == (len(block),)
            block.__arrow_c_array__()
            del array
