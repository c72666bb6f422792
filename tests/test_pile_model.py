"""gabion.Pile beside a plain model: a dict from pointer to pickle. After each step both agree and the pile is sound."""

import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from model import LONG, SIZES, Plain, Point, Slotted, check_equations, person

import gabion

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.binary(max_size=40)
)
graphs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
        st.builds(Slotted, st.integers(), st.text(max_size=5), inner),
        st.builds(lambda a, b: Plain(a=a, b=b), inner, inner),
        st.builds(Point, st.integers(), st.integers(), st.text(max_size=4)),
        st.builds(lambda value: [value, value, {"shared": value}], inner),
    ),
    max_leaves=8,
)
sized = st.builds(lambda size, fill: bytes([fill]) * size, st.sampled_from(SIZES), st.integers(0, 255))
values = st.one_of(graphs, sized, st.integers(0, 10**6).map(person))
reserves = st.sampled_from([0, 0, 0, 1, 64, 1000, 5000, 200_000, 2_000_000])


class PileMachine(RuleBasedStateMachine):
    pointers: Bundle[int] = Bundle("pointers")
    max_bytes: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.pile = gabion.Pile(max_bytes=self.max_bytes)
        self.model: dict[int, bytes] = {}
        self.gone: set[int] = set()
        self.views: list[tuple[memoryview, bytes]] = []

    def stored(self, pointer: int) -> Any:
        return pickle.loads(self.model[pointer])

    def forget(self, pointer: int) -> None:
        del self.model[pointer]
        self.gone.add(pointer)

    @rule(target=pointers, value=values, reserve=reserves)
    def put(self, value: Any, reserve: int) -> int:
        try:
            pointer = self.pile.put(value, reserve=reserve)
        except gabion.LimitError:
            assert self.max_bytes is not None
            return 0
        assert pointer not in self.model
        assert pointer not in self.gone
        self.model[pointer] = pickle.dumps(value)
        return pointer

    @rule(pointer=pointers, value=values)
    def replace(self, pointer: int, value: Any) -> None:
        try:
            self.pile.replace(pointer, value)
        except gabion.PointerError:
            assert pointer not in self.model
        except gabion.LimitError:
            assert self.max_bytes is not None
        else:
            assert pointer in self.model
            self.model[pointer] = pickle.dumps(value)

    @rule(pointer=pointers)
    def get(self, pointer: int) -> None:
        missing = object()
        found = self.pile.get(pointer, missing)
        assert (found is not missing) == (pointer in self.model)
        if found is not missing:
            assert found == self.stored(pointer)

    @rule(pointer=consumes(pointers))
    def remove(self, pointer: int) -> None:
        assert self.pile.discard(pointer) == (pointer in self.model)
        if pointer in self.model:
            self.forget(pointer)

    @rule(pointer=pointers)
    def pop_and_keep_the_number(self, pointer: int) -> None:
        try:
            found = self.pile.pop(pointer)
        except gabion.PointerError:
            assert pointer not in self.model
        else:
            assert found == self.stored(pointer)
            self.forget(pointer)

    @rule(pointer=pointers)
    def view(self, pointer: int) -> None:
        if isinstance(self.model.get(pointer) and self.stored(pointer), bytes):
            self.views.append((self.pile.view(pointer), self.stored(pointer)))

    @rule(number=st.integers(0, 9))
    def release(self, number: int) -> None:
        if self.views:
            self.views.pop(number % len(self.views))[0].release()

    @rule(many=st.lists(values, max_size=6))
    def put_many(self, many: list[Any]) -> None:
        try:
            pointers = self.pile.put_many(many)
        except gabion.LimitError:
            assert self.max_bytes is not None
            return
        self.model.update((pointer, pickle.dumps(value)) for pointer, value in zip(pointers, many))

    @rule(number=st.integers(0, 5))
    def remove_many(self, number: int) -> None:
        some = list(self.model)[number :: number + 2]
        assert self.pile.remove_many(some + list(self.gone)[:5]) == len(some)
        for pointer in some:
            self.forget(pointer)

    @rule()
    def compact(self) -> None:
        assert self.pile.compact() >= 0

    @rule()
    def clear(self) -> None:
        self.pile.clear()
        for pointer in list(self.model):
            self.forget(pointer)

    @invariant()
    def sound(self) -> None:
        self.pile.validate()
        check_equations(self.pile)
        assert sorted(self.pile) == sorted(self.model)
        assert all(view == shown for view, shown in self.views)
        assert not any(pointer in self.pile for pointer in self.gone)

    def teardown(self) -> None:
        for pointer in self.model:
            assert self.pile.get(pointer) == self.stored(pointer)
        self.pile.close()
        assert all(view == shown for view, shown in self.views)


class TightPileMachine(PileMachine):
    max_bytes = 5 << 20


CASE = settings(
    max_examples=2000 if LONG else 30,
    stateful_step_count=60 if LONG else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=not LONG,
)

PileMachine.TestCase.settings = CASE
TightPileMachine.TestCase.settings = CASE
TestPile = pytest.mark.timeout(3600 if LONG else 600)(PileMachine.TestCase)
TestTightPile = pytest.mark.timeout(3600 if LONG else 600)(TightPileMachine.TestCase)
