"""The error of a name that may not be built tells of all that the same object needs, in a form that can be pasted."""

import builtins
import collections
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import codec_cases as cases
import pytest
from kept import define, no_module, record, reopened, shop, text  # noqa: F401 - a fixture

import gabion
from gabion._native import CodecError, _Codec  # type: ignore[attr-defined]

# As libraries have them that are written in C: classes behind private functions that make their instances.
FRAMES = """
class Kind(enum.Enum):
    WIDE = 1

class Axis(typing.NamedTuple):
    names: object

class Block(list):
    pass

class Missing:
    def __reduce__(self):
        return "MISSING"

MISSING = Missing()

def _restore(rows, kind):
    frame = Frame()
    frame.rows, frame.kind = rows, kind
    return frame

def _set(frame, state):
    frame.axis = state

class Frame:
    def __reduce__(self):
        return _restore, (self.rows, self.kind), self.axis, None, None, _set
"""


def frame_of(module: ModuleType) -> Any:
    frame = module._restore(module.Block([1, module.MISSING]), module.Kind.WIDE)
    frame.axis = module.Axis(["a", {"b": module.Frame}])
    return frame


NAMES = ["shop._restore", "shop.Block", "shop.MISSING", "shop.Kind", "shop.Axis", "shop.Frame", "shop._set"]


def listed(error: object) -> list[str]:
    """Names in the first list of types that a text shows."""
    return re.findall(r"types=\[([^\]]*)\]", str(error))[0].split(", ")


def pasted(error: object) -> list[Any]:
    return eval(f"[{', '.join(listed(error))}]", {**sys.modules, **vars(builtins)})  # type: ignore[no-any-return]


def test_all_names_are_told_at_once(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode([frame_of(module), frame_of(module), collections.deque([ValueError(1)])])
    with pytest.raises(
        CodecError, match=r"may not build it, .* pass all 7 names that the stored object needs, "
    ) as told:
        reopened(first).decode(data)
    assert sorted(listed(told.value)) == sorted(NAMES)
    back, again, _ = reopened(first, pasted(told.value)).decode(data)
    assert (back.rows, back.kind, back.axis) == ([1, module.MISSING], module.Kind.WIDE, (["a", {"b": module.Frame}],))
    assert type(back.rows) is type(again.rows) is module.Block


def test_what_is_allowed_already_is_not_told(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode(frame_of(module))
    allowed = [module.Block, module.Axis, {"shop.Kind": module.Kind}]
    with pytest.raises(CodecError, match="pass all 4 names") as told:
        reopened(first, allowed).decode(data)
    assert sorted(listed(told.value)) == ["shop.Frame", "shop.MISSING", "shop._restore", "shop._set"]
    reopened(first, [*allowed, *pasted(told.value)]).decode(data)
    # What a program has put itself it may get.
    second = reopened(first, allowed)
    second.encode([module.MISSING, module._restore, module._set])
    with pytest.raises(CodecError, match=r"an object of shop\.Frame|refers to shop\.Frame") as told:
        second.decode(data)
    assert listed(told.value) == ["shop.Frame"]


def test_errors_of_another_name_or_module_tell_of_the_others(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode(frame_of(module))
    with no_module("crm"):
        crm = define(FRAMES, "crm")
        with pytest.raises(CodecError, match=r"may build crm\._restore, .* needs more names .*shop\.Block") as told:
            reopened(first, [crm._restore]).decode(data)
    del module._restore
    with pytest.raises(CodecError, match=r"defines nothing of that name; .* needs more names .*\[shop\.MISSING\]$"):
        reopened(first, [module]).decode(data)
    assert "shop.MISSING" in str(told.value)


@pytest.mark.parametrize("seed", range(40))
def test_the_list_is_all_that_it_takes(seed: int) -> None:
    """Of objects of all kinds, in all forms that an encoding has for them."""
    made = [*cases.objects(), *cases.scalars()] if seed == 0 else cases.random_graph(seed)
    first = _Codec()
    data = first.encode(made)
    # Attributes that are reached by their names are refused when that is asked for.
    try:
        reopened(first, [getattr]).decode(data)
    except CodecError as error:
        told = error
    back = reopened(first, [getattr, *pasted(told)]).decode(data)
    cases.assert_same(back, reopened(first, "*").decode(data), identity=False)


def test_a_name_that_is_no_code_is_not_shown_as_code(shop: Any) -> None:  # noqa: F811
    """Whoever wrote the file has chosen it, and somebody may paste it."""
    names = [(b"shop", b"f.<locals>.Local"), (b"os", b'system("x")'), (b"shop", b'a", os.system("x"), "b.c')]
    codec = _Codec()
    codec.restore(b"".join(record(4, text(module) + text(name)) for module, name in names))
    with pytest.raises(CodecError) as told:
        codec.decode(b"\x00\x83\xd3\x00\xd3\x01\xd3\x02")
    with pytest.raises(CodecError) as alone:
        codec.decode(b"\x00\xd3\x01")
    assert r"""types=[{"os.system(\"x\")": ...}]""" in str(alone.value)
    assert r"""types=[{"shop.f.<locals>.Local": ...}, {"os.system(\"x\")": ...}, {"shop.a\", os""" in str(told.value)


def test_damaged_bytes_are_told_of_as_before(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode(frame_of(module))
    for end in range(4, len(data)):
        with pytest.raises(CodecError, match=r"may not build|damaged"):
            reopened(first).decode(data[:end])


def test_a_saved_cache_and_a_pile_tell_the_same(shop: Any, tmp_path: Path) -> None:  # noqa: F811
    module = shop(FRAMES)
    with gabion.Pile(path=tmp_path / "pile") as pile:
        pointer = pile.put(frame_of(module))
    with gabion.Pile(path=tmp_path / "pile", read_only=True) as pile, pytest.raises(CodecError) as told:
        pile.get(pointer)
    assert sorted(listed(told.value)) == sorted(NAMES)
    with gabion.Pile(path=tmp_path / "pile", types=pasted(told.value)) as pile:
        assert pile.get(pointer).rows == [1, module.MISSING]
    cache = gabion.Cache("1 MiB")
    cache["frame"] = frame_of(module)
    cache.save(tmp_path / "cache")
    again = gabion.Cache("1 MiB")
    with pytest.warns(RuntimeWarning, match="1 entry was left out") as warned:
        again.load(tmp_path / "cache")
    assert "pass already, when you load the file: cache.load(path, types=[shop." in str(warned[0].message)
    assert sorted(listed(warned[0].message)) == sorted(NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.load(tmp_path / "cache", types=pasted(warned[0].message)) == 1
    assert again["frame"].kind is module.Kind.WIDE


# --- objects that pickle finds by their names -----------------------------------------------------


def test_an_object_that_is_stored_by_its_name_may_be_passed(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode([module.MISSING, {"a": module.MISSING}])
    with pytest.raises(CodecError, match=r"types=\[shop\.MISSING\]\), or types=\{\"shop\.MISSING\": MISSING\}") as told:
        reopened(first).decode(data)
    for types in (pasted(told.value), {"shop.MISSING": module.MISSING}, [{"shop.MISSING": module.MISSING}]):
        second = reopened(first, types)
        back, pair = second.decode(data)
        assert back is pair["a"] is module.MISSING
        # Its number is the file's.
        assert second.encode([module.MISSING, {"a": module.MISSING}]) == data
        assert second.describe() == first.describe()
    for types in ([module.Missing], [module], None):
        with pytest.raises(CodecError, match=r"shop\.MISSING"):
            reopened(first, types).decode(data)


def test_an_object_of_another_name_by_now_may_be_passed(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    first = _Codec()
    data = first.encode(module.MISSING)
    with no_module("crm"):
        crm = define(FRAMES, "crm")
        assert reopened(first, {"shop.MISSING": crm.MISSING}).decode(data) is crm.MISSING


def test_an_object_that_is_not_found_by_its_name_is_refused(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    for wrong in (module.Missing(), module.Block(), module.Kind.WIDE, object(), iter([])):
        for types in ([wrong], {"shop.MISSING": wrong}):
            with pytest.raises(TypeError, match=r"types= takes .*not "):
                _Codec(types)


def test_a_file_does_not_change_an_object_that_it_names(shop: Any) -> None:  # noqa: F811
    module = shop(FRAMES)
    codec = _Codec([module.MISSING])
    names = [(b"shop", b"MISSING"), (b"copyreg", b"_reconstructor")]
    codec.restore(b"".join(record(4, text(module) + text(name)) for module, name in names))
    # A list of it and "the object" that a reducer gives, a reference to it, which then gets a state.
    value = b"\x82\xd3\x00\xd5\x14\xd3\x01\x90\xc0"
    data = b"\x01" + value + bytes([len(value) - 2]) + b"\x99\x05__add\x61" + b"\x02" + (1).to_bytes(8, "little")
    with pytest.raises(CodecError, match="parts of an object that is there already"):
        codec.decode(data)
    assert vars(module.MISSING) == {}
