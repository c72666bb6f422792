"""Piles and forked processes: the child has a copy of its own, the parent's stays as it was."""

import gc
import os
import random
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy
import pytest
from child_processes import METHODS, in_child, run_as_program
from model import LONG, Plain, check_equations, person

import gabion

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]


def test_the_child_reads_what_the_parent_stored(pile: gabion.Pile) -> None:
    pointers = pile.put_many(person(i) for i in range(2000))
    big = pile.put(b"b" * 3_000_000)
    view = pile.view(big)

    def child() -> None:
        assert pile.get_many(pointers) == [person(i) for i in range(2000)]
        assert bytes(view) == pile.get(big) == b"b" * 3_000_000
        pile.validate()
        check_equations(pile)
        assert sorted(pile) == sorted([*pointers, big])

    in_child(child)


def private_bytes() -> int:
    """The memory that this process has changed, and shares with nobody."""
    found = re.search(r"^Private_Dirty: +(\d+) kB$", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not tell")
def test_memory_that_a_child_only_reads_stays_shared(pile: gabion.Pile) -> None:
    pointers = pile.put_many({"number": i, "name": f"Person {i}"} for i in range(200_000))
    stored = pile.stats().reserved_bytes
    assert stored > 6 << 20
    # What this process gives back while the child runs would be the child's alone.
    gabion.memory.trim(all=True)
    gabion.memory.trim_malloc()

    def child() -> None:
        gc.disable()  # it writes into the objects of this program, not of the pile
        before = private_bytes()
        assert sum(pile.get(pointer)["number"] for pointer in pointers) == sum(range(200_000))
        assert private_bytes() - before < stored // 4

    in_child(child)


def test_what_the_child_writes_stays_with_the_child(pile: gabion.Pile) -> None:
    sizes = (0, 10, 500, 1000, 3000, 70_000, 1_100_000)
    values = {pile.put(bytes([i]) * size): bytes([i]) * size for i in range(20) for size in sizes}
    view = pile.view(next(iter(values)))
    before = pile.stats().as_dict()

    def child() -> None:
        for number, pointer in enumerate(values):
            if number % 3 == 0:
                pile.replace(pointer, b"from the child" * (number % 200))
            elif number % 3 == 1:
                pile.remove(pointer)
        own = [pile.put(b"o" * size) for size in sizes for _ in range(50)]
        pile.validate()
        assert all(set(pile.get(pointer)) <= {ord("o")} for pointer in own)
        pile.compact()
        pile.validate()
        pile.clear()
        other = gabion.Pile()
        assert other.get(other.put("new pile")) == "new pile"

    in_child(child)
    assert pile.stats().as_dict() == before
    pile.validate()
    assert all(pile.get(pointer) == value for pointer, value in values.items())
    assert bytes(view) == next(iter(values.values()))
    pile.put("after")


def test_views_and_iterators_in_the_child(pile: gabion.Pile) -> None:
    pointers = pile.put_many(b"v" * size for size in (0, 100, 2000, 2_000_000))
    views = [pile.view(pointer) for pointer in pointers]
    iterator = iter(pile)
    next(iterator)

    def child() -> None:
        assert len(list(iterator)) == 3
        pile.close()
        assert all(set(view) <= {ord("v")} for view in views)
        while views:
            views.pop().release()

    in_child(child)
    assert len(list(iterator)) == 3
    assert all(set(view) <= {ord("v")} for view in views)


def test_children_of_children(pile: gabion.Pile) -> None:
    pointer = pile.put([0])

    def generation(number: int) -> None:
        assert pile.get(pointer) == [number]
        pile.replace(pointer, [number + 1])
        if number < 4:
            in_child(lambda: generation(number + 1))
        assert pile.get(pointer) == [number + 1]
        pile.validate()

    in_child(lambda: generation(0))
    assert pile.get(pointer) == [0]


def test_hooks_of_others_use_piles_while_their_thread_forks(script: Callable[..., str]) -> None:
    script(
        """
        import os
        ran = []

        def use():
            pile.compact()
            pile.validate()
            assert pile.get(pointer) == b"x" * 5000
            cache["key"] = len(ran)
            assert cache.expire() == 0
            assert image.resize((300, 200)).size == (300, 200)
            ran.append(1)

        # Registered first, so that they run between gabion's own and the fork.
        os.register_at_fork(before=use, after_in_parent=use, after_in_child=use)
        import gabion
        pile, cache, image = gabion.Pile(), gabion.Cache("1 MiB", ttl=60), gabion.Image.new("RGB", (600, 400))
        pointer = pile.put(b"x" * 5000)
        for _ in range(3):
            child = os.fork()
            if child == 0:
                use()
                os._exit(len(ran) % 2)
            assert os.waitpid(child, 0)[1] == 256
        assert len(ran) == 6
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_hooks_of_others_wait_for_threads_that_use_piles(script: Callable[..., str]) -> None:
    script(
        """
        import faulthandler, os, threading
        faulthandler.dump_traceback_later(240, exit=True)
        lock, locked, forking, stop = threading.Lock(), *(threading.Event() for _ in range(3))

        def before():
            forking.set()
            lock.acquire()

        # Registered first, so that they run between gabion's own and the fork.
        os.register_at_fork(before=before, after_in_parent=lock.release, after_in_child=lock.release)
        import gabion
        pile, cache, image = gabion.Pile(), gabion.Cache("1 MiB"), gabion.Image.new("RGB", (1200, 800))

        def use():
            cache["key"] = pile.put(b"x" * 5000)
            pile.compact()
            pile.validate()
            assert cache.clear() == 1
            assert image.resize((300, 200)).size == (300, 200)

        def use_locked():
            with lock:
                locked.set()
                forking.wait()
                use()

        def work(image, stop):
            while not stop.is_set():
                image.resize((600, 400))

        threading.Thread(target=work, args=(image, stop)).start()
        for _ in range(5):
            locked.clear(), forking.clear()
            thread = threading.Thread(target=use_locked)
            thread.start()
            locked.wait()
            child = os.fork()
            if child == 0:
                use()
                os._exit(0)
            thread.join()
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_a_child_that_is_forked_while_another_thread_uses_something_for_the_first_time(
    script: Callable[..., str],
) -> None:
    script(
        """
        import io, os, signal, sys, threading, uuid
        import gabion, gabion.memory, gabion.streams
        cache = gabion.Cache("1 MiB")
        uses = [
            lambda: gabion.streams.Reader(io.BytesIO(b"line")).readline(),
            lambda: gabion.streams.copy(io.BytesIO(b"stone"), io.BytesIO()),
            lambda: cache.get_or_put("key", lambda: 1),
            lambda: cache.put(uuid.UUID(int=5), 1),
            lambda: cache.put("words", [{"a": (1.5, None)}]),
            lambda: gabion.memory.rent_group("5 MiB")[0],
            lambda: gabion.memory.stats(),
        ]
        # Who has the interpreter keeps it until it waits, and who lets it go for a moment has to wait for it.
        sys.setswitchinterval(10)
        for use in uses:
            thread = threading.Thread(target=use)
            thread.start()
            child = os.fork()
            if child == 0:
                signal.alarm(240)
                use()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            thread.join()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("gabion.cache", 'gabion.Cache("1 MiB")["key"] = 1'),
        ("gabion._flights", 'gabion.Cache("1 MiB")["key"] = 1'),
        ("gabion.memory", 'gabion.memory.rent("1 MiB").release()'),
        ("datetime", "gabion.Pile().put([1.5])"),
        ("numpy", 'gabion.Image.new("L", (2, 2)).__array__()'),
        ("numpy", "gabion.Image.from_array(Picture())"),
        ("numpy", "gabion.numpy.install()"),
        ("numpy", "gabion.Pile(path={path!r}, read_only=True).get({array})"),
        ("decimal", "gabion.Pile(path={path!r}, read_only=True).get({number})"),
        ("uuid", "gabion.Pile(path={path!r}, read_only=True).get({uuid})"),
        ("inspect", 'gabion.Cache("1 MiB").on_evict(print)'),
    ],
)
def test_a_fork_waits_for_what_another_thread_imports(
    module: str, use: str, script: Callable[..., str], tmp_path: Path
) -> None:
    """The child would have the interpreter's lock of that module, in the hands of a thread that it does not have."""
    path = str(tmp_path / "pile")
    with gabion.Pile(path=path) as pile:
        array, number, uuid = pile.put_many([numpy.arange(5), Decimal("1.5"), UUID(int=5)])
    use = use.format(path=path, array=array, number=number, uuid=uuid)
    script(
        f"""
        import os, signal, sys, threading, time
        import gabion, gabion.numpy
        began = threading.Event()

        class Picture:
            def __array__(self, *_, **__):
                return sys.modules["numpy"].zeros((2, 2), "uint8")

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == {module!r}:
                    began.set()
                    time.sleep(0.3)

        def use():
            {use}

        assert {module!r} not in sys.modules
        sys.meta_path.insert(0, Slow())
        thread = threading.Thread(target=use)
        thread.start()
        assert began.wait(240)
        child = os.fork()
        if child == 0:
            signal.alarm(240)
            use()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_a_fork_that_waited_for_long_work_waits_for_imports_that_began_meanwhile(script: Callable[..., str]) -> None:
    script(
        """
        import os, signal, sys, threading, time
        import gabion
        forking, worked = threading.Event(), threading.Event()
        # Registered last, and so the first that a fork calls.
        os.register_at_fork(before=forking.set)

        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "gabion.memory":
                    worked.wait()
                    time.sleep(0.3)

        def work(image):
            image.resize((8000, 8000))
            worked.set()

        def use():
            gabion.memory.rent("1 MiB").release()

        def late():
            forking.wait()
            time.sleep(0.05)  # the fork waits for the work by now
            use()

        image = gabion.Image.new("RGB", (4000, 4000))
        assert "gabion.memory" not in sys.modules
        sys.meta_path.insert(0, Slow())
        threads = [threading.Thread(target=work, args=(image,)), threading.Thread(target=late)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)  # the work is under way
        child = os.fork()
        if child == 0:
            signal.alarm(240)
            worked.set()  # where the import is the child's own, nobody else does
            use()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for thread in threads:
            thread.join()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system does not tell")
def test_a_child_of_a_thread_ends_with_that_thread(script: Callable[..., str]) -> None:
    """Without exit() such a process goes on until its last thread has ended, those of gabion's own among them."""
    script(
        """
        import os, threading, time
        from pathlib import Path
        import gabion

        def names():
            return {Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")}

        def fork(generations):
            child = os.fork()
            if child == 0:
                cache = gabion.Cache("1 MiB", ttl=60)
                cache["key"] = 1
                gabion.memory.rent("8 MiB").release()
                while not {"gabion-sweeper", "gabion-trim"} <= names():
                    time.sleep(0.01)
                if generations > 1:
                    fork(generations - 1)
                return
            for _ in range(6000):
                if (ended := os.waitpid(child, os.WNOHANG)) != (0, 0):
                    break
                time.sleep(0.01)
            else:
                os.kill(child, 9)
                os.waitpid(child, 0)
            results.append(ended)
            if ended == (0, 0) or ended[1] != 0:
                os._exit(3)

        results = []
        thread = threading.Thread(target=fork, args=(2,))
        thread.start()
        thread.join()
        assert len(results) == 1
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_a_module_that_is_imported_anew_forks_as_before(script: Callable[..., str]) -> None:
    script(
        """
        import os, sys
        import gabion
        first, pile = gabion, gabion.Pile()
        pointer = pile.put(["stone"])
        for _ in range(3):
            for name in [name for name in sys.modules if name.split(".")[0] == "gabion"]:
                del sys.modules[name]
            import gabion
            assert gabion is not first and gabion.Pile is first.Pile
            child = os.fork()
            if child == 0:
                pile.compact()
                os._exit(pile.get(pointer) != ["stone"])
            assert os.waitpid(child, 0)[1] == 0
            pile.compact()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_fork_while_other_threads_write() -> None:
    pile = gabion.Pile()
    kept = pile.put_many(Plain(a=i, b="x" * (i % 2000)) for i in range(300))
    stop = threading.Event()

    def write(pile: gabion.Pile, seed: int) -> None:
        mine = random.Random(seed)
        own: list[int] = []
        while not stop.is_set():
            size = mine.choice((10, 500, 3000, 200_000))
            own.append(pile.put(bytes([size % 256]) * size))
            pile.replace(mine.choice(own), b"r" * mine.choice((5, 900, 5000)))
            if len(own) > 50:
                pile.remove(own.pop(mine.randrange(50)))
            if mine.randrange(300) == 0:
                pile.compact()

    def child() -> None:
        # The threads that wrote are gone. What they were in the midst of must block nobody.
        assert [found.a for found in pile.get_many(kept)] == list(range(300))
        own = [pile.put(b"c" * (i * 37 % 5000)) for i in range(300)]
        pile.replace(own[0], b"d" * 100_000)
        assert pile.get(own[7]) == b"c" * (7 * 37 % 5000)
        pile.remove_many(own[1:])
        for pointer in pile:
            assert pile.get(pointer) is not None
        other = gabion.Pile()
        assert other.get(other.put("x")) == "x"
        pile.clear()
        assert len(pile) == 0

    # By arguments: a variable that the child shares with a thread may be locked for ever there, where the interpreter
    # has no lock of its own.
    threads = [threading.Thread(target=write, args=(pile, seed)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200 if LONG else 12):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    pile.validate()
    assert [found.a for found in pile.get_many(kept)] == list(range(300))


PROCESSES = """
import multiprocessing, sys
import gabion

pile = gabion.Pile()
pointer = pile.put(["parent"])

def work(number):
    own = gabion.Pile()
    mine = own.put({"number": number})
    inherited = pile.get(pointer)
    pile.replace(pointer, ["child", number])
    return own.get(mine)["number"], inherited, pile.get(pointer)

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for number, (got, inherited, changed) in enumerate(pool.map(work, range(20), chunksize=20)):
            assert got == number
            assert changed == ["child", number]
            assert inherited == (["parent"] if number == 0 else ["child", number - 1])
    assert pile.get(pointer) == ["parent"]
    pile.validate()
    print("done")
"""


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    run_as_program(PROCESSES, tmp_path, method)


def test_pointers_of_a_child_are_refused_in_its_parent_and_in_its_sisters(script: Callable[..., str]) -> None:
    script("""
        import multiprocessing, os
        import gabion

        pile = gabion.Pile()
        before = pile.put_many(["something", "x" * 5_000, "y" * 100])
        pile.remove(before[2])

        def work(_):
            mine = [pile.put(("a child's", os.getpid())), pile.put("x" * 5_000), pile.put("x" * 900)]
            assert pile.get_many(before[:2]) == ["something", "x" * 5_000]
            assert pile.get(mine[0]) == ("a child's", os.getpid())
            return mine

        if __name__ == "__main__":
            refused = asked = 0
            for _ in range(3):
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    theirs = [ptr for some in pool.map(work, range(6), chunksize=3) for ptr in some]
                pile.put_many([f"parent's {number}" for number in range(18)] + ["x" * 5_000] * 18 + ["x" * 900] * 18)
                asked += len(theirs)
                refused += sum(ptr not in pile for ptr in theirs)
                # Those of two sisters: by luck the same.
                asked += 18
                refused += len(set(theirs))
            # Nearly always.
            assert refused >= asked - 36, (refused, asked)
            pile.validate()
            print("done")
    """)
