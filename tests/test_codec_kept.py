"""The numbers of a codec, described for another process and restored there."""

import functools
import gc
import pickle
import random
import sys
import weakref

import codec_cases as cases
import pytest
from kept import OBJECTS, SHOP, define, reopened, run, shop  # noqa: F401 - a fixture
from many_threads import run as run_threads

from gabion._native import CodecError, _Codec


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("allowed", ["everything", "module", "classes", "what it stored itself"])
def test_every_kind_comes_back(shop, name, allowed):  # noqa: F811
    module = shop(SHOP)
    obj = eval(OBJECTS[name], module.__dict__)
    first = _Codec()
    data = first.encode(obj)
    named = [value for value in vars(module).values() if getattr(value, "__module__", None) == "shop"]
    named += [module.Outer.Inner, module.Outer.Inner.__eq__]
    second = reopened(first, {"everything": "*", "module": [module], "classes": named}.get(allowed))
    if allowed == "what it stored itself":
        assert second.encode(obj) == data
    if (allowed, name) == ("module", "method of a class"):
        # It would change whatever it is called with, and that may be a class.
        with pytest.raises(CodecError, match="defines nothing of that name"):
            second.decode(data)
        return
    assert second.decode(data) == obj
    assert type(second.decode(data)) is type(obj)
    assert second.encode(obj) == data
    assert second.describe() == first.describe()


@pytest.mark.parametrize("value", cases.scalars(), ids=lambda v: repr(v)[:40])
def test_scalars_come_back(value):
    first = _Codec()
    data = first.encode([value, value])
    second = reopened(first, "*")
    cases.assert_same(second.decode(data), pickle.loads(pickle.dumps([value, value], 5)))


@pytest.mark.parametrize("obj", cases.objects(), ids=lambda v: type(v).__name__)
def test_objects_come_back_with_everything_allowed(obj):
    first = _Codec()
    data = [first.encode(each) for each in (obj, [obj, obj], {"k": (obj,)})]
    second = reopened(first, "*")
    for encoding, each in zip(data, (obj, [obj, obj], {"k": (obj,)}), strict=True):
        cases.assert_same(second.decode(encoding), pickle.loads(pickle.dumps(each, 5)))
    before = second.describe()
    assert [second.encode(each) for each in (obj, [obj, obj], {"k": (obj,)})] == data
    assert second.describe() == before


@pytest.mark.parametrize("seed", range(30))
def test_graphs_come_back(seed):
    graph = cases.random_graph(seed)
    first = _Codec()
    data = first.encode(graph)
    cases.assert_same(reopened(first, "*").decode(data), pickle.loads(pickle.dumps(graph, 5)))


def test_another_process_has_the_same_numbers(tmp_path):
    (tmp_path / "shop.py").write_text("import collections, dataclasses, enum, typing\n" + SHOP)
    expressions = list(OBJECTS.values())
    write = f"""
import shop, pickle
codec = _Codec()
data = [codec.encode(eval(text, vars(shop))) for text in {expressions!r}]
Path("data").write_bytes(pickle.dumps(data))
Path("records").write_bytes(codec.describe())
print(codec.type_count)
"""
    count = run(tmp_path, write)
    for allowed in ("*", None):
        read = f"""
import pickle
codec = _Codec({allowed!r})
codec.restore(Path("records").read_bytes())
data = pickle.loads(Path("data").read_bytes())
if {allowed is None}:
    import shop
    assert [codec.encode(eval(text, vars(shop))) for text in {expressions!r}] == data
back = [codec.decode(each) for each in data]
import shop
assert back == [eval(text, vars(shop)) for text in {expressions!r}], back
assert codec.describe() == Path("records").read_bytes()
print(codec.type_count)
"""
        assert run(tmp_path, read) == count


# --- fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dataclass", "slotted", "frozen", "plain", "slots", "named tuple"])
def test_fields_are_read_without_the_class(shop, name):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    data = first.encode(eval(OBJECTS[name], module.__dict__))
    second = reopened(first)
    assert second.fields(data, "visits", "name") == (3, "Ada")
    with pytest.raises(CodecError, match="may not build"):
        second.fields(data, "other")
    inside = first.encode({"k": module.Person("A"), "other": module.Pair("B"), "n": 1})
    second = reopened(first)
    assert second.fields(inside, "n") == (1,)
    with pytest.raises(CodecError, match="may not build"):
        second.fields(inside, "k")
    assert reopened(first, [module]).fields(data, "visits", "name") == (3, "Ada")


# --- numbers -------------------------------------------------------------------------------------


def test_a_file_has_its_classes_once_however_often_it_is_opened(shop):  # noqa: F811
    records, data = b"", []
    for round_ in range(100):
        module = shop(SHOP)
        codec = _Codec([module] if round_ % 3 else None)
        codec.restore(records)
        objects = [eval(text, module.__dict__) for text in OBJECTS.values()]
        order = random.Random(round_).sample(range(len(objects)), len(objects))
        encodings = {i: codec.encode(objects[i]) for i in order}
        data = data or [encodings[i] for i in range(len(objects))]
        assert [encodings[i] for i in range(len(objects))] == data
        assert [codec.decode(each) for each in data] == objects
        assert not records or codec.describe() == records
        records = codec.describe()


def test_new_classes_follow_the_old_ones(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    one = first.encode(module.Person("Ada"))
    second = reopened(first, [module])
    count = second.type_count
    two = second.encode([module.Pair("Ada"), module.Person("Ada")])
    assert second.describe()[: len(first.describe())] == first.describe()
    assert second.describe(count) == second.describe()[len(first.describe()) :]
    assert second.describe(second.type_count) == second.describe(1_000_000) == b""
    third = reopened(second, [module])
    assert third.decode(one) == module.Person("Ada")
    assert third.decode(two) == [module.Pair("Ada"), module.Person("Ada")]


def test_a_class_that_is_defined_anew_goes_on_as_ever(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    all_data = {name: first.encode(eval(text, module.__dict__)) for name, text in OBJECTS.items()}
    for types_ in ("*", "the module"):
        # A module does not let methods be called.
        names = [name for name in OBJECTS if types_ == "*" or name != "method of a class"]
        data = [all_data[name] for name in names]
        before = shop(SHOP)
        second = reopened(first, types_ if types_ == "*" else [before])
        old = [second.decode(each) for each in data]
        exec(SHOP, before.__dict__)
        new = [second.decode(each) for each in data]
        assert new == [eval(OBJECTS[name], before.__dict__) for name in names]
        assert type(new[0]) is before.Person is not type(old[0])
        assert [second.encode(each) for each in new] == data


def test_the_numbers_are_restored_once_and_first():
    first = _Codec()
    first.encode(cases.Plain(1))
    second = reopened(first)
    for codec in (first, second):
        before = codec.describe()
        with pytest.raises(CodecError, match="before anything else"):
            codec.restore(first.describe())
        assert codec.describe() == before
    empty = _Codec()
    empty.restore(b"")
    assert (empty.type_count, empty.describe()) == (0, b"")


def test_names_that_are_no_utf8_come_back():
    thing = cases.DictPerson()
    vars(thing).update({"\udc80": 1, "ä": 2, "\U0001f600": 3, "": 4, "a b": 5})
    first = _Codec()
    data = first.encode(thing)
    second = reopened(first, [cases])
    assert vars(second.decode(data)) == vars(thing)
    assert second.encode(thing) == data
    assert second.describe() == first.describe()


# --- threads -------------------------------------------------------------------------------------


def test_threads_meet_a_class_at_one_time(shop):  # noqa: F811
    module = shop(SHOP)
    # A module does not let methods be called.
    objects = [eval(text, module.__dict__) for name, text in OBJECTS.items() if name != "method of a class"]
    first = _Codec()
    data = [first.encode(each) for each in objects]
    for round_ in range(20):
        codec = reopened(first, "*" if round_ % 2 else [module])

        def work(codec=codec, seed=0):
            order = random.Random(seed).sample(range(len(data)), len(data))
            for i in order:
                if (seed + i) % 3:
                    assert codec.decode(data[i]) == objects[i]
                else:
                    assert codec.encode(objects[i]) == data[i]
            assert codec.fields(data[0], "name") == ("Ada",)

        run_threads(*(functools.partial(work, seed=seed) for seed in range(4)))
        assert codec.describe() == first.describe()


# --- the interpreter's own -------------------------------------------------------------------------


def test_attributes_lie_in_the_instance_as_they_do_elsewhere(shop):  # noqa: F811
    module = shop(
        SHOP + "\nclass Ending(Plain):\n    ended = []\n    def __del__(self):\n        self.ended.append(self)\n"
    )
    first = _Codec()
    data = [first.encode(module.Person("Ada", 3)), first.encode(module.Ending("Ada", 3))]
    later = shop(
        SHOP + "\nclass Ending(Plain):\n    ended = []\n    def __del__(self):\n        self.ended.append(self)\n"
    )
    second = reopened(first, [later])
    person = second.decode(data[0])
    # As in one that was made: without a dict of its own.
    assert gc.get_referents(person) == gc.get_referents(later.Person("Ada", 3))
    assert second.fields(data[0], "visits") == (3,)
    # Nor has it one after an object was stored that has a dict.
    with_dict = later.Person("Ada", 3)
    assert vars(with_dict)
    assert second.encode(with_dict) == data[0]
    assert gc.get_referents(second.decode(data[0])) == gc.get_referents(later.Person("Ada", 3))
    assert second.encode(later.Person("Ada", 3)) == data[0]
    ending = second.decode(data[1])
    assert later.Ending.ended == []
    assert vars(ending) == {"name": "Ada", "visits": 3}


@pytest.mark.skipif("t" in getattr(sys, "abiflags", ""), reason="classes are immortal there once a thread was started")
def test_a_codec_goes_with_the_classes_that_it_lets_be_built():
    class Local:
        pass

    first = _Codec()
    first.encode([cases.Plain(1), cases.Color.RED, cases.Point(1, 2)])
    gone = weakref.ref(Local)
    Local.codec = reopened(first, [Local, {"codec_cases.Plain": Local, "codec_cases.Other": Local}])
    thing = Local.codec.decode(first.encode(cases.Plain(1)))
    assert type(thing) is Local
    del Local, thing
    gc.collect()
    assert gone() is None
