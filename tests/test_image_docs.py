"""help(gabion.Image) and help(gabion.streams) are worth reading: examples that run, nothing undocumented."""

import doctest
import inspect
from typing import Any

import pytest

import gabion
from gabion import Image, streams

EXAMPLES = {
    "Image": Image,
    "Image.open": Image.open,
    "Image.probe": Image.probe,
    "Image.resize": Image.resize,
    "Image.new": Image.new,
    "Image.from_array": Image.from_array,
    "Image.from_bytes": Image.from_bytes,
    "Image.thumbnail": Image.thumbnail,
    "Image.convert": Image.convert,
    "Image.process_rows": Image.process_rows,
    "streams": streams,
    "streams.copy": streams.copy,
    "streams.Reader": streams.Reader,
    "streams.Writer": streams.Writer,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    if name == "Image.from_array":
        pytest.importorskip("numpy")
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(EXAMPLES[name]) or "", {}, name, None, 0)
    assert examples.examples, "there is no example"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append)
    assert said == []


@pytest.mark.parametrize(
    "thing", [Image, gabion.ImageInfo, streams.Reader, streams.Writer, streams.copy, gabion.ImageError]
)
def test_every_name_has_its_text(thing: Any) -> None:
    assert inspect.getdoc(thing)
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        # None until an error has it: told of with the class.
        if not name.startswith("_") and member is not None:
            assert inspect.getdoc(member), name


def test_signatures_are_those_of_the_contract() -> None:
    def shown(call: Any) -> str:
        return str(inspect.signature(call))

    assert shown(Image.open).startswith("(source, *, max_size=None, mode=None, filter='lanczos3'")
    assert shown(Image.new) == "(mode, size, color=0, *, contiguous=False, timeout=None)"
    assert shown(Image.from_array) == "(array, *, mode=None, contiguous=False)"
    assert shown(Image.from_bytes) == "(mode, size, data, *, timeout=None)"
    assert shown(Image.open).endswith("max_bytes=None, fit='inside', background=None, formats=None, timeout=None)")
    assert shown(Image.probe) == "(source, *, max_pixels=None, max_bytes=None, formats=None)"
    assert shown(Image.resize) == (
        "(self, /, size, *, filter='lanczos3', reducing_gap=None, contiguous=False, fit=None, background=None, "
        "timeout=None)"
    )
    assert shown(Image.convert) == "(self, mode, /, *, background=None, timeout=None)"
    assert shown(Image.save) == (
        "(self, /, target, *, format=None, quality=80, subsampling='4:2:0', progressive=False, optimize=False, "
        "lossless=False, compression='balanced', metadata=True)"
    )
    assert shown(streams.copy) == "(src, dst, *, limit=None, chunk='256 KiB')"
    assert shown(streams.Reader) == shown(streams.Writer) == "(file, *, chunk='256 KiB')"
    assert issubclass(gabion.ImageError, gabion.GabionError)
    assert issubclass(gabion.ImageError, ValueError)
