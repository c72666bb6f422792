"""gabion.Image and NumPy, Pillow, DLPack, Arrow: no copy where none is needed, memory as long as its users live."""

import ctypes
import gc
import io
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_files import MODES, gradient, noise

import gabion
from gabion import Image, ImageError

numpy = pytest.importorskip("numpy")

LARGE = (2000, 1600)  # three blocks in RGB

pytestmark = pytest.mark.usefixtures("balance")


def shape(image: Image) -> tuple[int, ...]:
    width, height = image.size
    return (height, width) if image.mode == "L" else (height, width, MODES[image.mode])


@pytest.mark.parametrize("mode", MODES)
def test_arrays_share_the_pixels(mode: str) -> None:
    image = noise(mode, (31, 17))
    for array in (numpy.asarray(image), numpy.from_dlpack(image), image.__array__(), numpy.asarray(memoryview(image))):
        assert (array.dtype, array.shape) == (numpy.uint8, shape(image))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.tobytes() == image.to_bytes()
        array[3, 4] = 99
        assert bytes(image.row(3))[4 * MODES[mode]] == 99
        image.row(3)[4 * MODES[mode]] = 98
        assert array[3, 4].flat[0] == 98
    again = Image.from_array(array, mode=mode)
    assert (again.mode, again.to_bytes()) == (mode, image.to_bytes())


def test_memoryviews() -> None:
    view = memoryview(noise("RGB", (5, 4)))
    assert (view.format, view.shape, view.strides, view.readonly) == ("B", (4, 5, 3), (15, 3, 1), False)
    assert view.c_contiguous
    grey = memoryview(noise("L", (5, 4)))
    assert (grey.shape, grey.strides) == ((4, 5), (5, 1))
    assert bytes(grey.cast("B")) == bytes(grey)
    assert ctypes.c_ubyte.from_buffer(noise("L", (5, 4))) is not None


def test_simple_buffers() -> None:
    """Users that know bytes alone see bytes alone."""
    image = noise("RGB", (5, 4))
    assert bytes(image) == image.to_bytes()
    assert bytearray(image) == image.to_bytes()
    assert hash(image.to_bytes()) == hash(bytes(memoryview(image)))


def test_large_images_are_copied_read_only_or_not_at_all() -> None:
    image = noise("RGB", LARGE)
    array = numpy.asarray(image)
    assert array.shape == (1600, 2000, 3)
    assert array.tobytes() == image.to_bytes()
    assert not array.flags.writeable
    mine = numpy.array(image)
    assert mine.flags.writeable
    ways: list[tuple[Callable[[Image], Any], str]] = [
        (memoryview, "open or make it with contiguous=True, call"),
        (lambda image: image.__arrow_c_array__(), "open or make it with contiguous=True, call"),
        (lambda image: image.__dlpack__(), "pass copy=True to from_dlpack() for a copy in one piece, open or make"),
    ]
    for refused, way in ways:
        with pytest.raises(BufferError, match=re.escape(f"lies in 3 blocks: {way}") + r".* make_contiguous\(\) first"):
            refused(image)
    shared = numpy.from_dlpack(image, copy=True)
    assert shared.tobytes() == image.to_bytes()
    assert shared.flags.writeable
    del shared
    with pytest.raises(AttributeError):
        _ = image.__array_interface__
    with pytest.raises(ValueError, match="cannot be an array without a copy"):
        image.__array__(copy=False)
    copied = image.__dlpack__(copy=True)
    del array, copied
    image.make_contiguous()
    array = numpy.asarray(image)
    assert array.flags.writeable
    array[0, 0] = 7
    assert bytes(image.row(0)[:3]) == b"\x07\x07\x07"


def test_array_arguments() -> None:
    image = noise("RGB", (5, 4))
    assert image.__array__("float32").dtype == numpy.float32
    assert numpy.asarray(image, dtype=numpy.uint16).dtype == numpy.uint16
    copied = image.__array__(copy=True)
    copied[:] = 0
    assert image.to_bytes() != bytes(60)
    interface = image.__array_interface__
    assert (interface["version"], interface["typestr"], interface["shape"]) == (3, "|u1", (4, 5, 3))

    # On the instance, and given to it: some interpreters never let go of what a class or its methods refer to.
    class OnlyInterface:
        def __init__(self, interface: dict[str, object]) -> None:
            self.__array_interface__ = interface

    array = numpy.asarray(OnlyInterface(interface))
    array[0, 0, 0] ^= 255
    assert array.tobytes() == image.to_bytes()


@pytest.mark.parametrize("way", ["asarray", "from_dlpack", "interface", "legacy capsule", "capsule", "arrow"])
def test_users_keep_the_pixels(way: str) -> None:
    gc.collect()
    before = gabion.memory.stats().live
    image = noise("RGBA", (300, 200))
    content = image.to_bytes()
    ways = {
        "asarray": numpy.asarray,
        "from_dlpack": numpy.from_dlpack,
        "interface": lambda image: image.__array_interface__["data"],
        "legacy capsule": lambda image: image.__dlpack__(),
        "capsule": lambda image: image.__dlpack__(max_version=(1, 0)),
        "arrow": lambda image: image.__arrow_c_array__(),
    }
    user = ways[way](image)
    image.close()
    del image
    others = [noise("RGBA", (300, 200), seed) for seed in range(10)]
    if way in ("asarray", "from_dlpack", "interface"):
        assert bytes(user) == content
    del others
    assert gabion.memory.stats().live == before + 1
    del user
    gc.collect()
    assert gabion.memory.stats().live == before


def test_dlpack_forms() -> None:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.argtypes, name.restype = [ctypes.py_object], ctypes.c_char_p
    image = noise("RGB", (5, 4))
    assert image.__dlpack_device__() == (1, 0)
    assert name(image.__dlpack__()) == b"dltensor"
    assert name(image.__dlpack__(max_version=(1, 1), stream=None, dl_device=(1, 0))) == b"dltensor_versioned"
    for options in ({"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError, match="CPU"):
            image.__dlpack__(**options)
    for _ in range(100):
        image.__dlpack__(copy=True)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    image = noise("RGB", (5, 4))
    tensor = torch.from_dlpack(image)
    tensor[0, 0, 0] = 7
    assert image.row(0)[0] == 7
    assert Image.from_array(tensor).to_bytes() == image.to_bytes()


def test_the_program_for_torch(tmp_path: Path) -> None:
    """The one that docs/images.md shows: compiled here, and run where there is a PyTorch."""
    page = (Path(__file__).parent.parent / "docs" / "images.md").read_text()
    (program,) = (
        found for found in re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "torch" in found
    )
    code = compile(program, "docs/images.md", "exec")
    torch = pytest.importorskip("torch")
    paths = []
    for number, size in enumerate([(300, 200), (2000, 1600), (224, 224)] * 15):
        paths.append(tmp_path / f"{number}.png")
        with Image.new("RGB", size, (number, 100, 255)) as image:
            image.save(paths[-1])
    names: dict[str, Any] = {"__name__": "program"}
    exec(code, names)
    shapes = []
    for batch in names["batches"](paths):
        assert batch[:, 2].eq(1).all()
        shapes.append((batch.dtype, *batch.shape))
    assert shapes == [(torch.float32, 32, 3, 224, 224), (torch.float32, 13, 3, 224, 224)]


# --- from arrays ----------------------------------------------------------------------------------


def test_strided_arrays() -> None:
    base = numpy.frombuffer(noise("RGB", (40, 30)).to_bytes(), dtype="uint8").reshape(30, 40, 3)
    for array in (
        base,
        base[::-1],
        base[:, ::-1],
        base[..., ::-1],
        base[3:20:2, 5:30:3],
        base.transpose(1, 0, 2),
        numpy.asfortranarray(base),
        base[..., 0],
        base[..., :2],
        base[:, :, 1:2],
        numpy.broadcast_to(base[:1], (7, 40, 3)),
    ):
        image = Image.from_array(array)
        expected = numpy.ascontiguousarray(array)
        assert image.size == (array.shape[1], array.shape[0])
        assert image.to_bytes() == expected.tobytes()


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_arrays_of_ctypes_come_without_strides(channels: int | None) -> None:
    pixel = ctypes.c_uint8 * channels if channels else ctypes.c_uint8
    array = ((pixel * 5) * 4)()
    ctypes.memmove(array, bytes(range(ctypes.sizeof(array))), ctypes.sizeof(array))
    image = Image.from_array(array)
    assert image.size == (5, 4)
    assert image.to_bytes() == bytes(range(ctypes.sizeof(array)))


def test_from_large_arrays_and_other_sources() -> None:
    array = numpy.random.default_rng(5).integers(0, 256, (1600, 2000, 3), dtype="uint8")
    assert Image.from_array(array).to_bytes() == array.tobytes()
    view = memoryview(bytes(range(12))).cast("B", (3, 4))
    assert Image.from_array(view).mode == "L"
    assert Image.from_array(noise("RGB", LARGE)).size == LARGE

    class ArrayLike:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return array[:5]

    class Tensor:
        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert Image.from_array(ArrayLike()).size == (2000, 5)
    assert Image.from_array(Tensor()).to_bytes() == array.tobytes()
    assert Image.from_array(array[..., :1]).mode == "L"
    cmyk = Image.from_array(numpy.zeros((2, 2, 4), "uint8"), mode="CMYK")
    assert cmyk.mode == "CMYK"


@pytest.mark.parametrize(
    ("array", "error", "told"),
    [
        (numpy.zeros((2, 2), "float32"), TypeError, r"uint8 is needed, not of format .f.: scale it to 0–255"),
        (numpy.zeros((2, 2), "int8"), TypeError, "not of format .b."),
        (numpy.zeros((2, 2), "uint16"), TypeError, "uint8"),
        (numpy.zeros((2, 2), bool), TypeError, "uint8"),
        (numpy.zeros(4, "uint8"), ImageError, "not of 1 dimensions"),
        (numpy.zeros((1, 2, 2, 3), "uint8"), ImageError, "not of 4 dimensions"),
        (numpy.zeros((2, 2, 5), "uint8"), ImageError, "5 channels is no image"),
        (numpy.zeros((3, 0), "uint8"), ValueError, "at least 1"),
        (numpy.zeros((0, 3), "uint8"), ValueError, "at least 1"),
        (numpy.zeros((2, 2, 0), "uint8"), ImageError, "0 channels"),
        (
            numpy.broadcast_to(numpy.uint8(0), (1, 1 << 40)),
            ValueError,
            "array: a side of 1099511627776 pixels; .* at most",
        ),
        (b"bytes", ImageError, "not of 1 dimensions"),
        ("text", TypeError, r"from_array\(\) takes an array of uint8, not str"),
        (None, TypeError, "not NoneType"),
        ([[1, 2], [3, 4]], TypeError, "not list"),
    ],
)
def test_what_is_no_picture(array: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Image.from_array(array)


def test_modes_must_fit_the_array() -> None:
    with pytest.raises(ImageError, match="an array of 3 channels is no RGBA image: that has 4"):
        Image.from_array(numpy.zeros((2, 2, 3), "uint8"), mode="RGBA")


# --- Pillow ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(31, 17), LARGE])
def test_pillow_there_and_back(mode: str, size: tuple[int, int]) -> None:
    pytest.importorskip("PIL.Image")
    image = gradient(mode, size)
    pillow = image.to_pillow()
    assert (pillow.mode, pillow.size) == (mode, size)
    assert pillow.tobytes() == image.to_bytes()
    again = Image.from_pillow(pillow)
    assert (again.mode, again.size) == (mode, size)
    assert again.to_bytes() == image.to_bytes()
    pillow.putpixel((0, 0), 5 if mode == "L" else (5,) * MODES[mode])
    assert image.row(0)[0] != 5 or gradient(mode, size).row(0)[0] == 5


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_pillow_shares_what_it_keeps_alike(mode: str) -> None:
    pytest.importorskip("PIL.Image")
    gc.collect()
    before = gabion.memory.stats().live
    image = gradient(mode, (300, 200))
    pillow = image.to_pillow()
    image.row(0)[0] = 77
    assert pillow.tobytes()[0] == 77
    image.close()
    del image
    assert gabion.memory.stats().live == before + 1
    assert pillow.tobytes()[0] == 77
    del pillow
    gc.collect()
    assert gabion.memory.stats().live == before


@pytest.mark.parametrize(
    ("mode", "info", "expected"),
    [
        ("1", {}, "L"),
        ("1", {"transparency": 0}, "LA"),
        ("L", {"transparency": 0}, "LA"),
        ("L", {"transparency": None}, "L"),
        ("RGB", {"transparency": (0, 0, 0)}, "RGBA"),
        ("LA", {"transparency": 0}, "LA"),
        ("RGBA", {"transparency": 0}, "RGBA"),
        ("CMYK", {"transparency": 0}, "CMYK"),
        ("P", {}, "RGB"),
        ("P", {"transparency": 0}, "RGBA"),
        ("YCbCr", {}, "RGB"),
        ("HSV", {}, "RGB"),
        ("La", {}, "LA"),
        ("RGBa", {}, "RGBA"),
        ("RGBX", {}, "RGB"),
    ],
)
def test_other_modes_of_pillow(mode: str, info: dict[str, Any], expected: str) -> None:
    pillow = pytest.importorskip("PIL.Image").new(mode, (5, 4))
    pillow.info.update(info)
    assert Image.from_pillow(pillow).mode == expected


@pytest.mark.parametrize(("mode", "clear", "expected"), [("L", 7, "LA"), ("RGB", (1, 2, 3), "RGBA")])
def test_a_transparent_colour_of_a_file_is_one_of_pillows(mode: str, clear: Any, expected: str) -> None:
    Pillow = pytest.importorskip("PIL.Image")
    picture, file = Pillow.new(mode, (4, 3), 9 if mode == "L" else (9, 8, 7)), io.BytesIO()
    picture.putpixel((1, 2), clear)
    picture.save(file, "PNG", transparency=clear)
    image = Image.open(file.getvalue())
    again = Image.from_pillow(Pillow.open(io.BytesIO(file.getvalue())))
    assert again.mode == image.mode == expected
    assert again.to_bytes() == image.to_bytes()
    assert again.to_bytes().count(0) == 1


# --- notebooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_a_notebook_shows(mode: str) -> None:
    for size, shown in (((20, 10), (20, 10)), ((1024, 300), (512, 150)), ((3, 2000), (1, 512))):
        image = noise(mode, size)
        png = image._repr_png_()
        assert type(png) is bytes
        again = Image.open(png)
        assert (again.format, again.size) == ("PNG", shown)
        assert again.mode == ("RGB" if mode == "CMYK" else mode)
        if shown == size:
            assert again.to_bytes() == image.convert(again.mode).to_bytes()
        assert image.size == size
        view = image.row(0)
        assert image._repr_png_() == png
        del view
        image.close()
        assert image._repr_png_() is None


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I;16N"])
def test_greys_of_16_bits_lose_the_lower_eight(mode: str) -> None:
    Pillow = pytest.importorskip("PIL.Image")
    values = numpy.array([[0, 255, 256], [0x7FFF, 0x8000, 0xFFFF]], numpy.uint16)
    order = {"I;16B": ">u2", "I;16N": "=u2"}.get(mode, "<u2")
    image = Image.from_pillow(Pillow.frombytes(mode, (3, 2), values.astype(order).tobytes()))
    assert (image.mode, image.size) == ("L", (3, 2))
    assert image.to_bytes() == bytes([0, 0, 1, 0x7F, 0x80, 0xFF])


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I;16N"])
def test_a_transparent_grey_of_16_bits_is_compared_with_all_of_them(mode: str) -> None:
    Pillow = pytest.importorskip("PIL.Image")
    values = numpy.array([[0x1234, 0x1235, 0x1334], [0x3412, 0, 0xFFFF]], numpy.uint16)
    order = {"I;16B": ">u2", "I;16N": "=u2"}.get(mode, "<u2")
    pillow = Pillow.frombytes(mode, (3, 2), values.astype(order).tobytes())
    pillow.info["transparency"] = 0x1234
    image = Image.from_pillow(pillow)
    assert (image.mode, image.size) == ("LA", (3, 2))
    assert image.to_bytes() == bytes([0x12, 0, 0x12, 255, 0x13, 255, 0x34, 255, 0, 255, 0xFF, 255])


@pytest.mark.parametrize("mode", ["I", "F"])
def test_values_that_may_be_any_are_refused(mode: str) -> None:
    """Pillow's own conversion makes white of all that is above 255."""
    pillow = pytest.importorskip("PIL.Image").new(mode, (5, 4))
    with pytest.raises(TypeError, match=rf"takes no mode {mode}: scale its values to 0-255 and convert them to mode L"):
        Image.from_pillow(pillow)


def test_pillow_refuses() -> None:
    for wrong in (5, "image", b"bytes", None):
        with pytest.raises(TypeError, match=r"from_pillow\(\) takes a PIL.Image.Image, not "):
            Image.from_pillow(wrong)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r"to_pillow\(\) needs Pillow, which is not installed"):
        noise("L", (2, 2)).to_pillow()


# --- Arrow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_arrow(mode: str) -> None:
    arrow = pytest.importorskip("nanoarrow")
    image = noise(mode, (5, 4))
    array = arrow.Array(image)
    if mode == "L":
        assert array.schema.type == arrow.Type.UINT8
        assert array.to_pylist() == list(image.to_bytes())
    else:
        assert array.schema.type == arrow.Type.FIXED_SIZE_LIST
        channels = MODES[mode]
        content = image.to_bytes()
        assert array.to_pylist() == [list(content[at : at + channels]) for at in range(0, len(content), channels)]
    view = arrow.c_array(image)
    del array, view
    for _ in range(50):
        image.__arrow_c_array__()
        image.__arrow_c_schema__()


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_pillow_takes_arrow(mode: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    if not hasattr(pillow, "fromarrow"):
        pytest.skip("this Pillow knows no Arrow")
    image = gradient(mode, (31, 17))
    assert pillow.fromarrow(image, mode, image.size).tobytes() == image.to_bytes()


def test_thumbnails_are_as_large_as_those_of_pillow() -> None:
    pillow = pytest.importorskip("PIL.Image")
    chance = random.Random(11)
    for size, most in [((3, 100), (50, 50)), ((10, 2), (7, 3)), ((10, 7), (2, 2))] + [
        ((chance.randint(1, 60), chance.randint(1, 60)), (chance.randint(1, 40), chance.randint(1, 40)))
        for _ in range(2000)
    ]:
        expected = pillow.new("L", size)
        expected.thumbnail(most)
        assert Image.new("L", size).thumbnail(most).size == expected.size, (size, most)
