"""Readers, Writers, copies and images over files that do whatever random bytes say."""

import gc
import io
import sys

import hostile_files
import pytest
from script_of_bytes import play_random

import gabion
from gabion import streams

pytestmark = [
    pytest.mark.usefixtures("balance"),
    pytest.mark.filterwarnings("ignore:__index__ returned non-int:DeprecationWarning"),
]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_that_a_file_does_is_harmful(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A Writer that goes says what it could not write.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    play_random(hostile_files.play, seed)
    gc.collect()


def test_a_reader_that_reads_into_its_own_chunk() -> None:
    class Keeping(io.RawIOBase):
        def readinto(self, buffer: memoryview) -> int:
            self.view = buffer
            buffer[:10] = b"0123456789"
            return 10

    file = Keeping()
    reader = streams.Reader(file, chunk=100)
    assert reader.read(2) == b"01"
    assert reader.readinto(file.view[1:5]) == 4
    assert bytes(file.view[1:5]) == b"2345"
    assert reader.read(1) == b"6"
    assert gabion.memory.stats().live >= 1
    del reader, file
    gc.collect()
