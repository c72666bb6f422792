"""No memory at step n, for every n, where a registry is described, restored and used: it works or is a MemoryError."""

from pathlib import Path

import pytest
from kept import run
from many_threads import LOCKED

pytest.importorskip("_testcapi")
# As in test_pile_out_of_memory.
pytestmark = pytest.mark.skipif(not LOCKED, reason="set_nomemory() needs the global lock")

PROGRAM = """
import _testcapi
# Where there is no memory for an error that nobody waits for, the interpreter says so.
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
sys.path.insert(0, TESTS)
import kept

SPAN = 1
module = kept.define(kept.SHOP)
objects = [eval(text, module.__dict__) for text in kept.OBJECTS.values()]
first = _Codec()
data = first.encode(objects)
records = first.describe()
changed = kept.define(kept.SHOP.replace("visits: int = 0", "new: int = 7"))

def new(types=None):
    codec = _Codec(types)
    codec.restore(records)
    return codec

def same(back):
    assert back == objects

CALLS = {
    "types": (_Codec, lambda _: _Codec([module, {"shop.Person": changed.Person}, module.greet])),
    "restore": (_Codec, lambda codec: codec.restore(records)),
    "describe": (new, lambda codec: codec.describe()),
    "describe own": (lambda: first, lambda codec: codec.describe()),
    "decode": (lambda: new([module]), lambda codec: same(codec.decode(data))),
    "decode changed": (lambda: new([changed]), lambda codec: codec.decode(data)),
    "encode": (new, lambda codec: codec.encode(objects)),
    "refused": (new, lambda codec: codec.decode(data)),
    "fields": (new, lambda codec: codec.fields(data, "name")),
}

# From 3.12 on CPython crashes by itself where it has no memory for a function, as in pickle.dumps() of these objects.
if sys.version_info >= (3, 12):
    CALLS = {name: call for name, call in CALLS.items() if not name.startswith(("decode", "encode"))}

def campaign(name):
    make, call = CALLS[name]
    step = quiet = fails = 0
    while quiet < 60 and step < 3000:
        codec, error = make(), None
        _testcapi.set_nomemory(step, step + SPAN)
        try:
            call(codec)
        except BaseException as raised:
            error = raised
        finally:
            _testcapi.remove_mem_hooks()
        if error is not None and not isinstance(error, (MemoryError, CodecError)):
            print(name, step, repr(error))
        failed = isinstance(error, MemoryError) or isinstance(getattr(error, "__cause__", None), MemoryError)
        fails, quiet, step = fails + failed, 0 if failed else quiet + 1, step + 1
        if name not in ("types", "restore"):
            assert codec.describe()[: len(records)] == records, (name, step)
        elif error is not None:
            assert codec.describe() == b"", (name, step)
    assert fails, name

for name in CALLS:
    sys.modules["shop"] = changed if name == "decode changed" else module
    campaign(name)
print("done")
"""


def test_no_memory_at_any_step_is_a_memory_error(tmp_path):
    assert run(tmp_path, f"TESTS = {str(Path(__file__).parent)!r}\n" + PROGRAM) == "done\n"
