"""Where gabion.Image.open() finds an image in a file that is open, and where the file stands afterwards."""

import gzip
import io
from pathlib import Path

import pytest
from image_files import encoded, gradient, noise
from stream_files import OnlyRead

import gabion
from gabion import Image, ImageError

pytestmark = pytest.mark.usefixtures("balance")


def test_a_file_is_read_from_where_it_stands() -> None:
    file = io.BytesIO(b"header" + encoded(noise("L", (5, 4)), "PNG"))
    file.seek(6)
    assert Image.open(file).size == (5, 4)
    assert file.read() == b""


def test_a_file_that_stands_elsewhere(tmp_path: Path) -> None:
    image = noise("L", (5, 4))
    path = tmp_path / "image.png"
    image.save(path)
    length = path.stat().st_size
    written = io.BytesIO()
    image.save(written, format="PNG")
    with path.open("rb") as read, path.open("rb", buffering=0) as raw, gabion.streams.Reader(path.open("rb")) as stream:
        for file in (written, read, raw, stream):
            file.seek(0, io.SEEK_END)
            with pytest.raises(ImageError, match=rf"stands at byte {length}, its end: call seek\(0\) first"):
                Image.open(file)
            file.seek(3)
            with pytest.raises(
                ImageError, match=r"stands at byte 3, and what is there is of no .*: call seek\(0\) first"
            ):
                Image.open(file)
            assert file.tell() == length
            file.seek(0)
            assert Image.open(file).to_bytes() == image.to_bytes()
    with pytest.raises(ImageError, match="the file is empty: get it anew"):
        Image.open(io.BytesIO())
    with pytest.raises(ImageError, match="the first bytes are of no image format"):
        Image.open(OnlyRead(b"no picture"))


def test_what_is_taken_for_the_bytes_of_a_file() -> None:
    for path in (b"rt.jpg", b"photos/some", bytearray(b"rt.jpg")):
        with pytest.raises(
            ImageError, match=r"no image format .*; bytes are the content .* pass it as a str or a Path$"
        ):
            Image.open(path)
    for content in (b"", bytes(50), b"x" * 300, b"<p>", b"BM"):
        with pytest.raises(ImageError, match=r"^((?!Path).)*$"):
            Image.open(content)
    pixels = memoryview(bytes(75)).cast("B", (5, 15))
    with pytest.raises(TypeError, match=r"not pixels: Image\.from_array\(array\) makes an image of this memoryview$"):
        Image.open(pixels)
    numpy = pytest.importorskip("numpy")
    for array in (numpy.zeros((5, 5, 3), "u1"), numpy.zeros((5, 6), "u1")[:, ::2], numpy.zeros((2, 2))):
        with pytest.raises(TypeError, match=r"Image\.from_array\(array\) makes an image of this ndarray$"):
            Image.open(array)
    with pytest.raises(TypeError, match=r"not pixels: Image\.from_array\(array\) makes an image of this Image$"):
        Image.open(gradient("RGB", (9, 5)))
    pillow = pytest.importorskip("PIL.Image")
    with pytest.raises(TypeError, match=r"not pixels: Image\.from_pillow\(image\) makes an image of this Image$"):
        Image.open(pillow.new("P", (4, 4)))
    content = encoded(gradient("L", (9, 5)), "PNG")
    with gabion.memory.rent(len(content)) as buffer:
        buffer[:] = content
        assert Image.open(buffer).size == (9, 5)
    whole = numpy.frombuffer(content, "u1")
    assert Image.open(whole).size == (9, 5)


class Remote(io.BytesIO):
    """A file whose seek() returns nothing, as that of many a file that is not the io module's."""

    def seek(self, offset: int, whence: int = 0) -> None:  # type: ignore[override]
        self.check(offset, whence)
        super().seek(offset, whence)

    def check(self, offset: int, whence: int) -> None:
        pass


@pytest.mark.parametrize("before", [b"", b"header"])
def test_a_file_whose_seek_returns_nothing(before: bytes) -> None:
    image = noise("L", (300, 200))
    file = Remote(before + encoded(image, "PNG"))
    file.seek(len(before))
    assert Image.open(file).to_bytes() == image.to_bytes()
    assert file.read() == b""
    with pytest.raises(
        gabion.LimitError, match=r"the file has at least 60[0-9]* bytes, more than max_bytes=1024 allows"
    ):
        file.seek(len(before))
        Image.open(file, max_bytes=1024)
    assert file.tell() == len(before)


class NoWay(Remote):
    """Says that it can seek, and does not."""

    def check(self, offset: int, whence: int) -> None:
        raise OSError("no way")


def test_a_file_that_does_not_go_to_its_end_is_read_all_the_same() -> None:
    image = noise("L", (300, 200))
    assert Image.open(NoWay(encoded(image, "PNG"))).to_bytes() == image.to_bytes()


def test_a_member_of_an_archive_is_read_to_the_limit_and_no_further() -> None:
    """It was decompressed to its end to see how long it is, and once more from its beginning."""
    packed = io.BytesIO()
    with gzip.open(packed, "wb", compresslevel=1) as archive:
        for _ in range(64):
            archive.write(bytes(1 << 20))
    packed.seek(0)
    with (
        gzip.open(packed) as member,
        pytest.raises(gabion.LimitError, match="bytes, more than max_bytes=100000 allows"),
    ):
        Image.open(member, max_bytes=100_000)
    assert packed.tell() < len(packed.getvalue()) // 4
    image = noise("L", (300, 200))
    with gzip.open(io.BytesIO(gzip.compress(encoded(image, "PNG")))) as member:
        assert Image.open(member).to_bytes() == image.to_bytes()


def test_a_file_on_disk_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.png"
    path.write_bytes(b"header" + bytes(1 << 20))
    for buffering in (-1, 0):
        with open(path, "rb", buffering=buffering) as file:
            file.seek(6)
            with pytest.raises(
                gabion.LimitError, match="the file has at least 1048576 bytes, more than max_bytes=1024 allows"
            ):
                Image.open(file, max_bytes=1024)
            assert file.tell() == 6


def test_what_is_read_or_copied_is_no_longer_than_max_bytes_and_bytes_may_be(tmp_path: Path) -> None:
    content = encoded(noise("RGB", (8, 8)), "BMP")
    most = len(content) - 1
    assert Image.open(content, max_bytes=most).size == Image.probe(content, max_bytes=most).size == (8, 8)
    (tmp_path / "image.bmp").write_bytes(content)
    for opened in (Image.open, Image.probe):
        for source in (bytearray(content), io.BytesIO(content), tmp_path / "image.bmp"):
            with pytest.raises(gabion.LimitError, match=f"bytes, more than max_bytes={most} allows"):
                opened(source, max_bytes=most)
