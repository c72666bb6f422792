"""What the errors of images say besides their text, so that a program can tell them apart."""

import io
import pickle
from pathlib import Path

import pytest
from image_files import encoded, gradient
from stream_files import OnlyRead

import gabion
from gabion import Image, ImageError, LimitError, memory

pytestmark = pytest.mark.usefixtures("balance")

CONTENT = encoded(gradient("RGB", (40, 30)), "PNG")
ALPHA = Image.new("RGBA", (3, 3))


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("corrupt", lambda: Image.open(CONTENT[: len(CONTENT) // 2])),
        ("corrupt", lambda: Image.open(CONTENT[:30])),
        ("corrupt", lambda: Image.open(io.BytesIO(CONTENT[: len(CONTENT) // 2]))),
        ("corrupt", lambda: Image.open(b"GIF89a" + bytes(20))),
        ("unsupported", lambda: Image.open(b"hello")),
        ("unsupported", lambda: Image.open(b"")),
        ("unsupported", lambda: Image.open(b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic")),
        ("unsupported", lambda: Image.open(CONTENT, formats=["JPEG"])),
        ("unsupported", lambda: ALPHA.save("picture.gif")),
        ("unfit", lambda: ALPHA.save(io.BytesIO(), format="JPEG")),
        ("unfit", lambda: ALPHA.paste(Image.new("L", (1, 1)))),
        ("unfit", lambda: ALPHA.crop((0, 0, 9, 9))),
        ("unfit", lambda: Image.from_bytes("L", (2, 2), b"123")),
    ],
)
def test_image_errors_have_a_kind(kind: str, work) -> None:
    with pytest.raises(ImageError) as caught:
        work()
    assert caught.value.kind == kind
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.kind, str(again)) == (ImageError, kind, str(caught.value))


def test_a_file_that_claims_to_have_no_pixels_is_damaged() -> None:
    none = CONTENT[:16] + bytes(4) + CONTENT[20:]
    with pytest.raises(ImageError) as caught:
        Image.open(none)
    assert caught.value.kind == "corrupt"


def test_limit_errors_name_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(CONTENT)
    for source in (CONTENT, path, io.BytesIO(CONTENT)):
        with pytest.raises(LimitError) as caught:
            Image.open(source, max_pixels=1000)
        assert (caught.value.limit, caught.value.asked, caught.value.allowed) == ("max_pixels", 1200, 1000)
    for source in (path, io.BytesIO(CONTENT), OnlyRead(CONTENT), bytearray(CONTENT), CONTENT):
        with pytest.raises(LimitError) as caught:
            Image.open(source, max_bytes=20)
        assert (caught.value.limit, caught.value.allowed) == ("max_bytes", 20)
        assert caught.value.asked > 20
    try:
        memory.configure(allocation_limit=1000)
        with pytest.raises(LimitError) as caught:
            Image.open(CONTENT)
        assert (caught.value.limit, caught.value.allowed) == ("allocation_limit", 1000)
        memory.configure(allocation_limit=None, total_limit=1)
        with pytest.raises(LimitError) as caught:
            Image.new("L", (5000, 5000))
        assert caught.value.limit == "total_limit"
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.limit, again.asked, again.allowed) == ("total_limit", 25_000_000, 1)
    finally:
        memory.configure(allocation_limit=None, total_limit=None)
    with pytest.raises(LimitError) as caught:
        memory.rent(1 << 60)
    assert caught.value.limit == "machine"
    with gabion.Pile(max_bytes="1 MiB") as pile, pytest.raises(LimitError) as caught:
        pile.put(bytes(2_000_000))
    assert caught.value.limit in ("max_bytes", None)


def test_errors_that_say_nothing_more() -> None:
    assert (LimitError.limit, LimitError.asked, LimitError.allowed, ImageError.kind) == (None,) * 4
    assert (LimitError("text").limit, ImageError("text").kind) == (None, None)
    assert not hasattr(gabion.CodecError, "kind")


def test_mistakes_in_a_call_are_pythons_own() -> None:
    image = gradient("RGB", (9, 7))
    for work in (
        lambda: Image.open(CONTENT, max_size=0),
        lambda: Image.open(CONTENT, max_size=(5, -1)),
        lambda: Image.new("L", (0, 5)),
        lambda: Image.from_bytes("L", (0, 5), b""),
        lambda: image.resize((0, 1)),
        lambda: image.resize((1, 1 << 40)),
        lambda: image.copy().thumbnail(-3),
    ):
        with pytest.raises(ValueError, match="a side of") as caught:
            work()
        assert type(caught.value) is ValueError


def test_a_path_as_bytes_is_told_where_it_looks_like_one() -> None:
    for path in (b"photo.jpg", b"photos/some", b"C:/x", b"a.TIFF"):
        with pytest.raises(ImageError, match="pass it as a str or a Path"):
            Image.open(path)
    for content in (b"hello", b"photo", b"a.txt", b"a/b\0", b"<a/b>", b"not a picture at all"):
        with pytest.raises(ImageError, match=r"^((?!Path).)*$"):
            Image.open(content)


def test_backgrounds_of_grey_are_one_number() -> None:
    with pytest.raises(TypeError, match=r"background must be a number from 0 to 255 for L$"):
        ALPHA.convert("L", background=(255, 255, 255))
    with pytest.raises(TypeError, match=r"background must be a number from 0 to 255, or 3 of them for RGB$"):
        ALPHA.convert("RGB", background=(255, 255))
