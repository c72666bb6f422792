"""gabion.monitor: let others see what this process holds, as it changes.

`gabion top` shows all processes of a user that have started it, and whatever reads JSON over HTTP can ask them, or
Prometheus, at /metrics. Nothing listens until start() is called, or where GABION_MONITOR=1 (or =HOST:PORT) stands in
the environment when gabion is imported. Who asks gets figures, names and paths; no key, no value, and no way to change
anything.

>>> import gabion.monitor
>>> pile = gabion.Pile()
>>> pointer = pile.put("a stone")
>>> gabion.monitor.figures()["piles"][-1]["objects"]
1

Functions: start(), stop(), figures().
"""

from __future__ import annotations

import atexit
import errno
import glob
import ipaddress
import itertools
import json
import math
import os
import re
import select
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gabion import _native
from gabion._metrics import MOST_OF_A_KIND, metrics
from gabion._own_socket import OwnSocket

__all__ = ["figures", "start", "stop"]

# Seconds that somebody who asks may take to say what, and to hear the answer.
PATIENCE = 5.0
# Bytes that a question may have.
LONGEST_QUESTION = 8 << 10
# Those who are listened to at one time; others wait until one of them has its answer, or has lost its patience.
MOST_ASKING = 64
# Seconds between two looks whether the socket is there: it may wait at another, which has got the number.
A_LOOK = 1.0
# Seconds that nobody takes from the first name of a socket to its own.
A_MOMENT = 60.0
# What a path of a socket may have, less the zero behind it.
LONGEST_PATH = 107
# The socket is closed, or shut down, or its number is another file's. Whatever else accept() says may get better.
NO_MORE = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
SHARED = {"reserved_bytes", "index_bytes"}
OFF = {"", "0", "no", "false", "off"}
ON = {"1", "yes", "true", "on"}

_lock = threading.RLock()
_listener: _Listener | None = None
# All that is open here, for a forked child to close.
_open: set[OwnSocket] = set()


def start(address: str | None = None) -> str:
    """Answer who asks for this process's figures, until stop() or its end. Return where: a path, or a URL.

    Without an address it is a socket in a folder that only this user can look into, below XDG_RUNTIME_DIR or else the
    folder for temporary files, and `gabion top` finds it by itself. With one ("127.0.0.1:8077"; port 0 is any that is
    free), it is HTTP there, for whoever can reach it: nobody is asked for a password, so choose an address that only
    those can reach who may know. One thread waits and does nothing else; an answer takes what figures() takes.

    Started again, it stops at the old place. A forked child has its own socket; of an address, the parent keeps it.
    Raises ValueError for what is no address, OSError where nobody can listen there.
    """
    global _listener
    wanted = None if address is None else split_address(address)
    with _lock:
        made = _listen(wanted)
        stop()  # whatever is there by now: a handler of signals may have started it meanwhile
        _listener = made
        return made.where


def _listen(wanted: tuple[str, int] | None) -> _Listener:
    """Listen at a place. Where the old listener is in the way, it stops first, and goes on if that was in vain."""
    global _listener
    old = _listener
    if old is None or not old.may_be_at(wanted):
        return _Listener(wanted)
    if wanted is not None:
        try:
            return _Listener(wanted)  # of one port, at another host
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    stop()
    try:
        return _Listener(wanted)
    except BaseException:
        with suppress(OSError, RuntimeError):
            if _listener is None:
                _listener = old.again()
        raise


def stop() -> None:
    """Answer nobody any more. Does nothing where start() was not called."""
    global _listener
    with _lock:
        listener = _listener
        if listener is not None:
            try:
                listener.close()
            finally:
                _listener = None


def figures() -> dict[str, Any]:
    """Return what there is now: the process, the pool, all piles and all caches, as values that JSON can say.

    Sizes are bytes. ``pool`` is as ``gabion.memory.stats()``; each of ``piles`` has its path (None in memory), its name
    and the figures of its stats() but for the classes, each of ``caches`` its name, its number of tables and its
    stats(), and all of them an ``id`` that no other one has. ``table_stats`` of a cache are the names and stats() of
    its tables, those of memoized functions among them, the largest first: of the 300 largest in the process;
    ``tables_left_out`` says how many others there are. What the system does not tell is None. Takes time linear in the
    piles, caches and tables, whatever they hold.

    >>> cache = gabion.Cache("64 MiB", name="shop")
    >>> cache.table("pages")["/"] = "<h1>Stones</h1>"
    >>> [table] = gabion.monitor.figures()["caches"][-1]["table_stats"]
    >>> table["name"], table["inserted"], table["hit_rate"]
    ('pages', 1, 0.0)
    """
    return {
        "gabion": _native.__version__,
        "python": sys.version.split()[0],
        "pid": os.getpid(),
        "command": [str(word) for word in (sys.executable or "python", *getattr(sys, "argv", []))],
        "time": time.time(),
        "seconds": _seconds_alive(),
        "resident_bytes": _resident(),
        "pool": _native.stats().as_dict(),
        "piles": _native._piles(),
        "caches": _caches(),
    }


def _caches() -> list[dict[str, Any]]:
    loaded = sys.modules.get("gabion.cache")
    # What subclasses have made of their methods is their own matter.
    own = getattr(loaded, "Cache", None)
    if loaded is None or own is None:  # as it is while the module is imported
        return []
    told = []
    for cache in [reference() for reference in loaded._caches.valuerefs()]:
        if cache is not None:  # as it is when the collector has just taken it
            with suppress(_native.ClosedError):
                about = {"id": cache._gabion_number, "name": own.name.__get__(cache), "tables": len(own.tables(cache))}
                largest = _native.CacheTable._largest_tables(cache, MOST_OF_A_KIND)
                told.append({**about, **own.stats(cache).as_dict(), "table_stats": list(map(_of_table, largest))})
    tables = [(cache, table) for cache in told for table in cache["table_stats"]]
    for cache in told:
        cache["table_stats"] = []
    for cache, table in sorted(tables, key=lambda one: -one[1]["bytes"])[:MOST_OF_A_KIND]:
        cache["table_stats"].append(table)
    for cache in told:
        cache["tables_left_out"] = max(cache["tables"] - len(cache["table_stats"]), 0)
    return told


def _of_table(table: tuple[str, _native.CacheStats]) -> dict[str, Any]:
    name, stats = table
    # What tables share is the cache's alone.
    return {"name": name, **{what: value for what, value in stats.as_dict().items() if what not in SHARED}}


def _resident() -> int | None:
    with suppress(OSError, ValueError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _seconds_alive() -> float | None:
    with suppress(OSError, ValueError), open("/proc/self/stat") as file:
        begun = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - begun
    return None


def _as_json() -> bytes:
    """Write the figures down, a pile and a cache at a time: others want the interpreter meanwhile."""
    told = figures()
    lists = {name: told.pop(name) for name in ("piles", "caches")}
    parts = [f'"{name}": [{", ".join(json.dumps(one) for one in ones)}]' for name, ones in lists.items()]
    return f"{json.dumps(told)[:-1]}, {', '.join(parts)}}}".encode()


def _as_metrics() -> bytes:
    return metrics([figures()]).encode()


# What there is at which path.
FORMS: dict[bytes, tuple[str, Callable[[], bytes]]] = {
    b"/": ("application/json", _as_json),
    b"/metrics": ("text/plain; version=0.0.4; charset=utf-8", _as_metrics),
}


# --- where ---------------------------------------------------------------------------------------


def split_address(address: str) -> tuple[str, int]:
    """Take "HOST:PORT" apart; "http://" may stand before it, and an address of IPv6 stands in brackets."""
    if not isinstance(address, str):
        raise TypeError(f"address must be a str such as '127.0.0.1:8077', or None, not {type(address).__qualname__}")
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    number = int(port) if re.fullmatch("[0-9]{1,5}", port) else 65_536
    if not bare or (":" in host and bare == host) or number > 65_535:
        raise ValueError(f"address={address!r} is none: write HOST:PORT, as in '127.0.0.1:8077'")
    return bare, number


def folders() -> list[str]:
    """Return the folders that have sockets of this user, and that nobody else can reach; of all for the superuser."""
    own = os.getuid()
    run = _run_folder()
    found = [(run, own)] if run else []
    found += [(f"/run/user/{own}/gabion", own), (_temporary_folder(own), own)]
    if own == 0:
        others = glob.glob("/run/user/*/gabion") + glob.glob(_temporary_folder("*"))
        found += [(path, int(of[-1])) for path in others if (of := re.findall(r"[0-9]+", path))]
    return list(dict.fromkeys(path for path, owner in found if _is_private(path, owner)))


def _run_folder() -> str | None:
    """Return where XDG_RUNTIME_DIR says; it may be relative, gone, or another user's: sudo and su leave it as it is."""
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError, ValueError):
        if os.path.isabs(run) and os.stat(run).st_uid == os.getuid():
            return os.path.join(run, "gabion")
    return None


def _temporary_folder(owner: object) -> str:
    try:
        return os.path.join(tempfile.gettempdir(), f"gabion-{owner}")
    except OSError:  # no folder for temporary files can be written to
        return f"/tmp/gabion-{owner}"


def _is_private(folder: str, owner: int) -> bool:
    with suppress(OSError):
        about = os.lstat(folder)
        return stat.S_ISDIR(about.st_mode) and about.st_uid == owner and not about.st_mode & 0o077
    return False


def sweep(folder: str) -> None:
    """Take away the sockets of processes that are no more, or have become other programs."""
    # Under a name that ends so a socket is bound at first: for no longer than a moment.
    for path in glob.glob(os.path.join(glob.escape(folder), "*.sock")) + _older(folder, "*.sock-"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.lstat(path).st_mode) and not _is_answered(path):
                os.unlink(path)


def _older(folder: str, names: str) -> list[str]:
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), names)):
        with suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > A_MOMENT:
                found.append(path)
    return found


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(0.0)
        return asking.connect_ex(path) != errno.ECONNREFUSED


def _socket_of_user(*, sweeps: bool) -> tuple[socket.socket, str]:
    folder = _run_folder() or _temporary_folder(os.getuid())
    path = os.path.join(folder, f"{os.getpid()}.sock")
    made = socket.socket(socket.AF_UNIX)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _is_private(folder, os.getuid()):
            wrong = "others can reach it, or it is theirs: chmod 700, remove it, or set XDG_RUNTIME_DIR"
            raise PermissionError(errno.EACCES, wrong, folder)
        # Bound under another name, so that nobody finds a socket at which nobody listens yet.
        first = f"{path}-"
        if len(os.fsencode(first)) > LONGEST_PATH:
            wrong = f"longer than {LONGEST_PATH - 1} bytes, as no socket's may be: set XDG_RUNTIME_DIR"
            raise OSError(errno.ENAMETOOLONG, wrong, path)
        if sweeps:
            sweep(folder)
        if os.path.lexists(path) and _is_answered(path):
            wrong = (
                "another process of this number answers there, of a container that shares the folder: give an address"
            )
            raise OSError(errno.EADDRINUSE, wrong, path)
        with suppress(FileNotFoundError):
            os.unlink(first)
        made.bind(first)
        made.listen(16)
        os.rename(first, path)
    except OSError as error:
        made.close()
        error.filename = error.filename or folder
        raise
    return made, path


def _socket_of_network(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        kind, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(kind)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(found)
            made.listen(16)
        except OSError:
            made.close()
            raise
        return made
    except UnicodeError:
        raise OSError(errno.EINVAL, "nobody can listen there: no name of a host", f"{host}:{port}") from None
    except OSError as error:
        raise OSError(error.errno, f"nobody can listen there: {error.strerror}", f"{host}:{port}") from None


# --- who answers ---------------------------------------------------------------------------------


class _Question:
    """What somebody who asks has said so far."""

    def __init__(self, asking: socket.socket) -> None:
        asking.setblocking(False)
        self.own, self.number = OwnSocket(asking), asking.fileno()
        self.end = time.monotonic() + PATIENCE
        self.said = b""

    def hear(self) -> bool:
        """Listen, and return whether the question is whole. Raises OSError when it will never be."""
        asking = self.own.get()
        if asking is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        with suppress(BlockingIOError):
            more = asking.recv(LONGEST_QUESTION)
            self.said += more
            if not more or len(self.said) > LONGEST_QUESTION:
                raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
        return b"\r\n\r\n" in self.said

    def reply(self, answer: bytes) -> None:
        asking = self.own.get()
        if asking is not None:
            asking.settimeout(max(self.end - time.monotonic(), 0.001))
            asking.sendall(answer)


class _Listener:
    """A socket, and the thread that waits for who asks there."""

    def __init__(self, address: tuple[str, int] | None, *, sweeps: bool = True) -> None:
        self.address, self.path = address, ""
        self.asking: dict[int, _Question] = {}
        if address is None:
            made, self.path = _socket_of_user(sweeps=sweeps)
            about = os.lstat(self.path)
            self.file = (about.st_dev, about.st_ino)
        else:
            made = _socket_of_network(address)
        made.setblocking(False)
        self.own, self.bound = OwnSocket(made), made.getsockname()
        self.at_home = not self.path and ipaddress.ip_address(self.bound[0]).is_loopback
        _open.add(self.own)
        self.thread = threading.Thread(target=self._serve, name="gabion-monitor", daemon=True)
        try:
            # The thread takes the mask along: the program's signals are for the program's threads.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self.thread.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self.leave()
            raise

    @property
    def where(self) -> str:
        if self.address is None:
            return self.path
        host, port = self.bound[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def may_be_at(self, address: tuple[str, int] | None) -> bool:
        """Whether it may be that nobody else can listen at an address as long as this one does."""
        if self.address is None or address is None:
            return self.address is address
        return bool(address[1] == self.bound[1])

    def again(self) -> _Listener:
        """Return another one, at the same place as this one, which has stopped."""
        return _Listener(None if self.address is None else (self.address[0], self.bound[1]))

    def _serve(self) -> None:
        try:
            # Until close(), or somebody who closes all that is open.
            while (listening := self.own.get()) is not None and self._serve_next(listening):
                pass
        finally:
            for question in list(self.asking.values()):
                self._forget(question)

    def _serve_next(self, listening: socket.socket) -> bool:
        """Wait until somebody asks or says something; answer whose question is whole. Return whether to go on."""
        poll, number = select.poll(), listening.fileno()
        if number < 0:  # closed just now
            return False
        if len(self.asking) < MOST_ASKING:
            poll.register(number, select.POLLIN)
        for asking in self.asking:
            poll.register(asking, select.POLLIN)
        end = min((question.end for question in self.asking.values()), default=math.inf)
        ready = dict(poll.poll(1000 * max(min(end - time.monotonic(), A_LOOK), 0.0)))
        for found in ready:
            if found in self.asking:
                self._listen_to(self.asking[found])
        for question in list(self.asking.values()):
            if question.end <= time.monotonic():
                self._forget(question)
        # Of a socket that close() has shut down, only this tells.
        return number not in ready or (ready[number] == select.POLLIN and self._let_in())

    def _let_in(self) -> bool:
        listening = self.own.get()  # again: it was waited meanwhile
        if listening is None:
            return False
        try:
            question = _Question(listening.accept()[0])
        except BlockingIOError:  # whoever it was has gone
            return True
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_MORE:
                return False
            # Whoever it was has gone; or there are no descriptors or no memory now, or a rule of the system's is
            # against it, which is the same at once.
            if not isinstance(error, ConnectionAbortedError):
                time.sleep(0.5)
            return True
        if (lost := self.asking.get(question.number)) is not None:  # somebody has closed it meanwhile
            self._forget(lost)
        _open.add(question.own)
        self.asking[question.number] = question
        return True

    def _listen_to(self, question: _Question) -> None:
        try:
            if not question.hear():
                return
            question.reply(_answer(question.said, at_home=self.at_home))
        except Exception:
            pass  # such as no memory for the answer: the next one may get theirs
        self._forget(question)

    def _forget(self, question: _Question) -> None:
        question.own.close()
        _open.discard(question.own)
        self.asking.pop(question.number, None)

    def close(self) -> None:
        """Stop, and take the socket away."""
        try:
            for one in (self.own, *(question.own for question in list(self.asking.values()))):
                found = one.get()
                if found is not None:
                    with suppress(OSError):  # whoever is asking gets no answer
                        found.shutdown(socket.SHUT_RDWR)
            self.thread.join(PATIENCE)
        finally:
            self.leave()

    def leave(self) -> None:
        """Let the socket go, and take its name away if that is still its own."""
        self.own.close()
        _open.discard(self.own)
        if self.path:
            with suppress(OSError):
                about = os.lstat(self.path)
                if (about.st_dev, about.st_ino) == self.file:
                    os.unlink(self.path)


def _answer(asked: bytes, *, at_home: bool) -> bytes:
    """Answer a question that is whole."""
    what, *lines = asked.split(b"\r\n")
    method, _, path = what.rpartition(b" ")[0].partition(b" ")
    kind = "text/plain; charset=utf-8"
    hosts = [line[5:].strip() for line in lines if line[:5].lower() == b"host:"]
    if method not in (b"GET", b"HEAD"):
        status, body = "405 Method Not Allowed", b"The figures can be got, and nothing else"
    elif at_home and not all(map(_is_address, hosts)):
        # A page in a browser may have a name of its own lead here, and read what this machine alone should know.
        status, body = "403 Forbidden", b"Ask by the address, not by a name"
    elif (written := FORMS.get(path.partition(b"?")[0])) is None:
        status, body = "404 Not Found", b"The figures are at /, and for Prometheus at /metrics"
    else:
        try:
            status, kind, body = "200 OK", written[0], written[1]()
        except Exception as error:
            status, body = "500 Internal Server Error", repr(error).encode(errors="replace")
    head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head if method == b"HEAD" else head + body


def _is_address(host: bytes) -> bool:
    bare = re.sub(rb":[0-9]*$", b"", host).strip(b"[]").decode("ascii", "replace")
    with suppress(ValueError):
        ipaddress.ip_address(bare)
        return True
    return bare == "localhost"


# --- begin and end -------------------------------------------------------------------------------


def _start_by_environment(said: str) -> None:
    """Start as GABION_MONITOR says. A program should not fail for want of somebody who looks at it."""
    said = said.strip()
    words = [os.path.basename(word) for word in sys.orig_argv]
    if said.lower() in OFF or ("gabion", "top") in itertools.pairwise(words):
        return
    try:
        start(None if said.lower() in ON else said)
    except (OSError, ValueError, RuntimeError) as error:
        with suppress(RuntimeWarning):  # where warnings are errors
            text = f"GABION_MONITOR={said}: nobody can see this process: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _after_fork() -> None:
    """In a child that was forked: the parent's thread is not here, and its sockets are the parent's."""
    global _lock, _listener
    _lock = threading.RLock()
    listener, _listener = _listener, None
    for one in list(_open):
        one.close()
    _open.clear()
    if listener is None or listener.address is not None:
        return
    with suppress(OSError, RuntimeError):  # no descriptors, no threads: the child has other worries
        _listener = _Listener(None, sweeps=False)
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:  # its children end without what `atexit` knows
            processes.register_after_fork(_listener, lambda _: processes.Finalize(None, stop, exitpriority=0))


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)
