"""gabion.numpy: what is installed, for whom, since when and until when."""

import contextvars
import gc
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import HANGS

import gabion.memory
import gabion.numpy

np = pytest.importorskip("numpy")

LARGE = 1 << 20


def handler_name(*array: Any) -> str:
    multiarray = importlib.import_module("numpy.core.multiarray" if np.__version__ < "2" else "numpy._core.multiarray")
    return multiarray.get_handler_name(*array)


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    assert gabion.numpy.installed() is None
    yield
    gabion.numpy.uninstall()


def is_pooled(array: Any) -> bool:
    return gabion.numpy.is_pooled(array)


def large() -> Any:
    return np.empty(LARGE, np.uint8)


def test_install_and_uninstall() -> None:
    assert not is_pooled(large())
    gabion.numpy.install()
    assert gabion.numpy.installed() == 256 << 10
    assert is_pooled(large())
    assert not is_pooled(np.empty((256 << 10) - 1, np.uint8))
    assert is_pooled(np.empty(256 << 10, np.uint8))
    gabion.numpy.uninstall()
    gabion.numpy.uninstall()
    assert gabion.numpy.installed() is None
    assert not is_pooled(large())
    for _ in range(3):
        gabion.numpy.install()
        gabion.numpy.install(1000)
        assert gabion.numpy.installed() == 1000
        assert is_pooled(np.empty(1000, np.uint8))
        assert not is_pooled(np.empty(999, np.uint8))
        gabion.numpy.uninstall()
    assert not is_pooled(large())


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.empty(LARGE),
        lambda: np.zeros(LARGE),
        lambda: np.ones((1000, 1000), np.float32),
        lambda: np.arange(LARGE) * 2,
        lambda: np.random.default_rng(0).random(LARGE),
        lambda: np.concatenate([np.ones(LARGE), np.ones(LARGE)]),
        lambda: np.fft.fft(np.ones(LARGE)),
        lambda: np.array(bytearray(LARGE)),
        lambda: np.empty(LARGE, object),
        lambda: np.full(LARGE, "text"),
        lambda: np.frombuffer(bytearray(LARGE), np.uint8).copy(),
        lambda: np.zeros(LARGE, [("a", "u1"), ("b", "f8")]),
    ],
)
def test_however_an_array_is_made(make: Callable[[], Any]) -> None:
    gabion.numpy.install()
    array = make()
    assert is_pooled(array)
    assert is_pooled(array[5:][::2].T)
    assert not is_pooled(np.ones(10))


def test_it_is_for_every_thread_and_context() -> None:
    gabion.numpy.install()
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(is_pooled(large()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found += [contextvars.Context().run(lambda: is_pooled(large())), contextvars.copy_context().run(is_pooled, large())]
    assert found == [True] * 6


def test_threads_that_install_and_uninstall_leave_one_or_the_other() -> None:
    def toggle() -> None:
        for _ in range(200):
            gabion.numpy.install()
            gabion.numpy.uninstall()

    for _ in range(10):
        threads = [threading.Thread(target=toggle) for _ in range(3)]
        threads.append(threading.Thread(target=gabion.numpy.install))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert is_pooled(large()) == (gabion.numpy.installed() is not None)
    gabion.numpy.install()
    assert is_pooled(large())


def test_a_thread_that_began_before() -> None:
    go, found = threading.Event(), []

    def work() -> None:
        first = is_pooled(large())
        go.wait()
        found.extend([first, is_pooled(large())])

    thread = threading.Thread(target=work)
    thread.start()
    gabion.numpy.install()
    go.set()
    thread.join()
    assert found[-1] is True


def test_arrays_older_and_younger() -> None:
    gc.collect()
    live = gabion.memory.stats().live
    content = np.arange(LARGE, dtype=np.uint8)
    before = [content.copy() for _ in range(20)]
    gabion.numpy.install()
    during = [array.copy() for array in before]
    before[:10] = []
    gabion.numpy.uninstall()
    after = [array.copy() for array in during]
    assert [is_pooled(array) for array in (before[0], during[0], after[0])] == [False, True, False]
    during[:10] = []
    assert gabion.memory.stats().live == live + 10
    for array in (*before, *during, *after):
        assert np.array_equal(array, content)
    gabion.numpy.install()
    before.clear()
    after.clear()
    during.clear()
    del array
    gc.collect()
    assert gabion.memory.stats().live == live


def test_pooled_is_for_this_thread_and_its_block_only() -> None:
    other: list[bool] = []
    with gabion.numpy.pooled():
        inside = large()
        assert handler_name(inside) == handler_name() == "gabion"
        thread = threading.Thread(target=lambda: other.append(is_pooled(large())))
        thread.start()
        thread.join()
        assert contextvars.copy_context().run(lambda: is_pooled(large()))
    assert is_pooled(inside)
    assert not is_pooled(large())
    assert handler_name() == "default_allocator"
    assert other == [bool(getattr(sys.flags, "thread_inherit_context", 0))]


def test_pooled_nested() -> None:
    with gabion.numpy.pooled("1 MiB"):
        with gabion.numpy.pooled(100):
            assert is_pooled(np.empty(100, np.uint8))
            with gabion.numpy.pooled("1 MiB"):
                assert not is_pooled(np.empty(100, np.uint8))
                assert is_pooled(large())
            assert is_pooled(np.empty(100, np.uint8))
        assert not is_pooled(np.empty(100, np.uint8))
        assert is_pooled(large())
        gabion.numpy.install(10)
        assert not is_pooled(np.empty(100, np.uint8)), "the handler of this context counts"
        gabion.numpy.uninstall()
        assert is_pooled(large())
    assert not is_pooled(large())


def test_pooled_ends_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), gabion.numpy.pooled():
        raise ZeroDivisionError
    assert not is_pooled(large())


def test_pooled_in_tasks() -> None:
    import asyncio

    async def pooled() -> bool:
        with gabion.numpy.pooled():
            await asyncio.sleep(0.01)
            return is_pooled(large())

    async def plain() -> bool:
        await asyncio.sleep(0.005)
        return is_pooled(large())

    async def both() -> list[bool]:
        return await asyncio.gather(pooled(), plain(), pooled(), plain())

    assert asyncio.run(both()) == [True, False, True, False]


@pytest.mark.parametrize("call", [gabion.numpy.install, lambda size: gabion.numpy.pooled(size).__enter__()])
@pytest.mark.parametrize(
    ("size", "error"), [(-1, ValueError), ("x", ValueError), (1.5, TypeError), (None, TypeError), (True, TypeError)]
)
def test_nonsense_is_refused(call: Callable[..., Any], size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="min_bytes"):
        call(size)
    assert gabion.numpy.installed() is None


def test_everything_may_be_pooled() -> None:
    gabion.numpy.install(0)
    arrays = [np.empty(size, np.uint8) for size in (0, 1, 2, 100, 1023, 1024, 5000)]
    assert all(is_pooled(array) for array in arrays)
    assert np.array([]).sum() == 0.0
    assert (np.zeros(3) + 1).tolist() == [1.0, 1.0, 1.0]
    gabion.numpy.uninstall()
    del arrays


def test_is_pooled_says_what_it_takes() -> None:
    with pytest.raises(TypeError, match="list"):
        gabion.numpy.is_pooled([1])
    assert not is_pooled(np.frombuffer(bytes(LARGE), np.uint8))
    assert not is_pooled(np.asarray(gabion.memory.rent(LARGE)))


def test_limits_hold_for_arrays() -> None:
    gabion.numpy.install()
    gabion.memory.trim(all=True)
    gabion.memory.configure(allocation_limit="8 MiB")
    try:
        with pytest.raises(MemoryError, match="Unable to allocate"):
            np.empty(9 << 20, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(9 << 20, np.uint8)
        array = np.empty(8 << 20, np.uint8)
        with pytest.raises(MemoryError):
            array.resize(9 << 20, refcheck=False)
        assert array.size == 8 << 20
    finally:
        gabion.memory.configure(allocation_limit=None)
    np.empty(9 << 20, np.uint8)


def test_without_numpy(script: Callable[..., str]) -> None:
    said = script(
        """
        import sys
        class NoNumpy:
            def find_spec(self, name, *_):
                if name == "numpy":
                    raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
        sys.meta_path.insert(0, NoNumpy())
        import gabion.numpy
        assert "numpy" not in sys.modules
        for call in (gabion.numpy.install, gabion.numpy.pooled().__enter__):
            try:
                call()
            except ModuleNotFoundError as error:
                print(error, error.name)
        gabion.numpy.uninstall()
        assert gabion.numpy.installed() is None
        """
    )
    assert said.splitlines() == ["gabion.numpy needs NumPy, which is not installed: pip install numpy numpy"] * 2


def test_importing_it_does_not_import_numpy() -> None:
    program = "import sys, gabion.memory, gabion.numpy; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANGS)
