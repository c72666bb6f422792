"""Classes of the main script, which has two names: `__main__`, and `__mp_main__` in a worker of `multiprocessing`."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kept import no_module, reopened
from patience import HANGS

from gabion._native import CodecError, _Codec  # type: ignore[attr-defined]

SCRIPT = """
import sys
from dataclasses import dataclass
import gabion

@dataclass
class Pp:
    x: int

    class Inner:
        pass

def write(path):
    with gabion.Pile(path=path) as pile:
        pile.root = pile.put([Pp(3), Pp.Inner(), Pp])

def read(path):
    for types in ([Pp, Pp.Inner], {"shop.Old": Pp, "shop.Other": Pp.Inner}, [sys.modules[Pp.__module__]]):
        with gabion.Pile(path=path, types=types) as pile:
            found, inner, itself = pile.get(pile.root)
            assert (type(found), type(inner), itself) == (Pp, Pp.Inner, Pp)
            before = pile.stats().types
            assert pile.get(pile.put([found, inner]))[0] == found
            assert pile.stats().types == before or len(types) == 1, (types, "one class has one number")

if __name__ == "__main__":
    what, path = sys.argv[1:]
    if what == "alone":
        read(path)
    else:
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            if what == "to":
                write(path)
                pool.apply(read, (path,))
            else:
                pool.apply(write, (path,))
                pool.apply(read, (path,))
                read(path)
"""


def test_a_worker_and_the_script_read_what_the_other_has_written(tmp_path: Path) -> None:
    script, path = tmp_path / "script.py", tmp_path / "a.pile"
    script.write_text(SCRIPT)
    for what in ("to", "from", "alone"):  # alone: nobody has imported multiprocessing
        if what != "alone":
            path.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-B", script, what, path], check=False, capture_output=True, text=True, timeout=HANGS
        )
        assert (done.returncode, done.stderr) == (0, "")


def define(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    exec("class Pp:\n    def __init__(self, x=0): self.x = x\n", module.__dict__)
    return module


def test_another_class_of_the_name_is_none_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", define("__main__"))
    first = _Codec()
    data = first.encode(sys.modules["__main__"].Pp(3))
    with no_module("__mp_main__", "shop", "shop.more"):
        worker = define("__mp_main__").Pp
        text = r"stored under this name, and this pile may build __mp_main__\.Pp, which is another name"
        with pytest.raises(CodecError, match=text) as raised:
            reopened(first, [worker]).decode(data)
        assert 'types={"__main__.Pp": Pp}' in str(raised.value)
        with pytest.raises(CodecError, match="types="):
            reopened(first, [sys.modules["__mp_main__"]]).decode(data)
        assert type(reopened(first, {"__main__.Pp": worker}).decode(data)) is worker
        own = sys.modules["__main__"].Pp
        for types in ([own], [worker, own], [own, worker]):
            assert type(reopened(first, types).decode(data)) is own
        other = define("shop.more").Pp
        with pytest.raises(CodecError, match=r"__main__\.Pp: it was stored .* may build shop\.more\.Pp"):
            reopened(first, [other]).decode(data)
        with pytest.raises(CodecError, match=r"types=\[Pp\]\)"):
            reopened(first, [dict]).decode(data)
