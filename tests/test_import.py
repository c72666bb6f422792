"""What `import gabion` brings along: next to nothing, because the collector walks it for ever after."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from many_threads import LOCKED

import gabion


def _after(code: str) -> dict[str, list[str] | int]:
    program = f"""
import gc, json, sys
gc.collect()
objects, modules = len(gc.get_objects()), set(sys.modules)
{code}
gc.collect()
print(json.dumps({{"objects": len(gc.get_objects()) - objects, "modules": sorted(set(sys.modules) - modules)}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_who_comes_for_a_pile_gets_no_thousands_of_objects() -> None:
    found = _after("import gabion\npile = gabion.Pile()\npile.get(pile.put({'name': 'Ada'}))")
    assert not {"asyncio", "dataclasses", "inspect", "logging", "typing"} & set(found["modules"])
    # A fresh interpreter has about 5,000 objects; most of what is left here comes with pickle, datetime and re.
    assert found["objects"] < 2500


MODULES = ["memory", "monitor", "numpy", "streams", "typing"]


@pytest.mark.parametrize("name", [*gabion.__all__, *MODULES])
def test_every_public_name_comes_at_its_first_use(name: str) -> None:
    found = _after(f"import gabion\nassert {name!r} in dir(gabion)\nassert gabion.{name} is gabion.{name}")
    assert "gabion" in found["modules"]
    _after(f"from gabion import {name}")


def test_a_star_import_takes_the_place_of_no_module() -> None:
    """It put gabion.numpy in the place of a program's numpy."""
    _after("import json as numpy\nfrom gabion import *\nassert numpy is json\nassert Pile and Image and __version__")
    assert not set(MODULES) & set(gabion.__all__)


def test_every_class_of_the_extension_is_made_when_it_is_imported() -> None:
    """At a first use there may be no memory for it, and PyO3 ends the process."""
    sources = Path(__file__).parent.parent / "crates/gabion-python/src"
    if not sources.exists():
        pytest.skip("the sources are not here")
    wanted = []
    for path in sources.glob("**/*.rs"):
        for options, name in re.findall(r"#\[pyclass(?:\(([^)]*)\))?\][^{;]*?\bstruct (\w+)", path.read_text()):
            given = dict(re.findall(r'(\w+) = "([^"]*)"', options))
            wanted.append([given["module"], given.get("name", name)])
    program = """
import json, gabion._native
print(json.dumps([[made.__module__, made.__name__] for made in object.__subclasses__()]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    assert len(wanted) > 20
    assert [names for names in wanted if names not in made] == []


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'gabion' has no attribute 'Pil'"):
        gabion.Pil  # noqa: B018


USES = [
    "import gabion",
    "import gabion; pile = gabion.Pile(); ptr = pile.put([Record(), Record]); pile.get(ptr); rest = pile.items()",
    "import gabion; cache = gabion.Cache('1 MiB'); cache.memoize(make)(); cache.on_evict(lambda key, value: None)",
    "import gabion; pile = gabion.Pile(); ptrs = pile.put_many(range(10_000)); pile.get_many(ptrs)",
    "import gabion.numpy, gabion.streams; buffer = gabion.memory.rent(100); image = gabion.Image.new('L', (3, 3))",
]


@pytest.mark.parametrize("use", USES)
def test_what_a_program_leaves_open_ends_with_the_interpreter(tmp_path: Path, use: str) -> None:
    program = f"""
class Record:
    def __del__(self, print=print):
        print("gone")
def make():
    return Record()
{use}
last = Record()
file = open({str(tmp_path / "open")!r}, "w")
file.write("written")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("gone\n")
    # Without the GIL 3.14 may lose it by itself: it ends a file and what that writes to in no certain order.
    if LOCKED or sys.version_info < (3, 14):
        assert (tmp_path / "open").read_text() == "written"


def test_ctrl_c_in_the_midst_of_the_first_pile_is_ctrl_c() -> None:
    """It was an ImportError."""
    program = """
import gabion, sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "datetime":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
try:
    gabion.Pile()
except KeyboardInterrupt:
    print(gabion.Pile().put(1) > 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
