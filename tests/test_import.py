"""What `import gabion` brings along: next to nothing, because the collector walks it for ever after."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("name", gabion.__all__)
def test_every_public_name_comes_at_its_first_use(name: str) -> None:
    found = _after(f"import gabion\nassert {name!r} in dir(gabion)\nassert gabion.{name} is gabion.{name}")
    assert "gabion" in found["modules"]
    _after(f"from gabion import {name}")


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'gabion' has no attribute 'Pil'"):
        gabion.Pil  # noqa: B018
