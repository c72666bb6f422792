"""gabion.monitor: let others see what this process holds, as it changes.

`gabion top` shows all processes of a user that have started it, and whatever reads JSON over HTTP can ask them. Nothing
listens until start() is called, or where GABION_MONITOR=1 (or =HOST:PORT) stands in the environment when gabion is
imported. Who asks gets figures, names and paths; no key, no value, and no way to change anything.

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
import json
import os
import socket
import stat
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from gabion import _native

__all__ = ["figures", "start", "stop"]

# Seconds that somebody who asks may take to say what.
PATIENCE = 5.0
# What a path of a socket may have, less the zero behind it.
LONGEST_PATH = 107

_lock = threading.RLock()
_listener: _Listener | None = None


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
        stop()
        made = _Listener(_over_socket() if wanted is None else _over_network(wanted), wanted)
        _listener = made
        return made.where


def stop() -> None:
    """Answer nobody any more. Does nothing where start() was not called."""
    global _listener
    with _lock:
        listener, _listener = _listener, None
        if listener is not None:
            listener.close()


def figures() -> dict[str, Any]:
    """Return what there is now: the process, the pool, all piles and all caches, as values that JSON can say.

    Sizes are bytes. ``pool`` is as ``gabion.memory.stats()``; each of ``piles`` has its path (None in memory) and the
    figures of its stats() but for the classes, each of ``caches`` its name, its number of tables and its stats(), and
    all of them an ``id`` that no other one has at the time. Takes a moment for each, whatever it holds.
    """
    return {
        "gabion": _native.__version__,
        "python": sys.version.split()[0],
        "pid": os.getpid(),
        "command": [os.fspath(sys.executable or "python"), *sys.argv],
        "time": time.time(),
        "seconds": _seconds_alive(),
        "resident_bytes": _resident(),
        "pool": _native.stats().as_dict(),
        "piles": _native._piles(),
        "caches": _caches(),
    }


def _caches() -> list[dict[str, Any]]:
    loaded = sys.modules.get("gabion.cache")
    if loaded is None:
        return []
    # What subclasses have made of their methods is their own matter.
    own, told = loaded.Cache, []
    for cache in [reference() for reference in loaded._caches.valuerefs()]:
        if cache is not None:  # as it is when the collector has just taken it
            with suppress(_native.ClosedError):
                about = {"id": id(cache), "name": own.name.__get__(cache), "tables": len(own.tables(cache))}
                told.append({**about, **own.stats(cache).as_dict()})
    return told


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _seconds_alive() -> float:
    with open("/proc/self/stat") as file:
        begun = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - begun


# --- where ---------------------------------------------------------------------------------------


def split_address(address: str) -> tuple[str, int]:
    """Take "HOST:PORT" apart; "http://" may stand before it, and an address of IPv6 stands in brackets."""
    if not isinstance(address, str):
        raise TypeError(f"address must be a str such as '127.0.0.1:8077', or None, not {type(address).__qualname__}")
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in host and bare == host) or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ValueError(f"address={address!r} is none: write HOST:PORT, as in '127.0.0.1:8077'")
    return bare, int(port)


def folders() -> list[str]:
    """Return the folders in which sockets of this user may be; of all users for the superuser."""
    temporary = tempfile.gettempdir()
    found = [os.path.join(temporary, f"gabion-{os.getuid()}")]
    run = os.environ.get("XDG_RUNTIME_DIR")
    if run and os.path.isdir(run):  # it may be another user's, or gone: sudo and su leave it in the environment
        found.insert(0, os.path.join(run, "gabion"))
    if os.getuid() == 0:
        found += glob.glob("/run/user/*/gabion") + glob.glob(os.path.join(glob.escape(temporary), "gabion-*"))
    return list(dict.fromkeys(found))


def _over_socket() -> HTTPServer:
    folder = folders()[0]
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            wrong = "others may write here, or it is theirs: remove it, or set XDG_RUNTIME_DIR"
            raise PermissionError(errno.EACCES, wrong, folder)
        path = os.path.join(folder, f"{os.getpid()}.sock")
        if len(os.fsencode(path)) > LONGEST_PATH:
            wrong = f"longer than {LONGEST_PATH} bytes, as no socket's may be: set XDG_RUNTIME_DIR"
            raise OSError(errno.ENAMETOOLONG, wrong, path)
        if os.path.lexists(path):
            os.unlink(path)  # of a process that had this number before
        return _SocketServer(path, _Answer)  # type: ignore[arg-type]  # the stubs know addresses of the network only
    except OSError as error:
        error.filename = error.filename or folder
        raise


def _over_network(address: tuple[str, int]) -> HTTPServer:
    host, port = address
    try:
        kind = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return _NetworkServer(address, _Answer, kind)
    except OSError as error:
        raise OSError(error.errno, f"nobody can listen there: {error.strerror}", f"{host}:{port}") from None


# --- who answers ---------------------------------------------------------------------------------


class _Answer(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version = f"gabion/{_native.__version__}"

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/":
            self.send_error(404, explain="The figures are at /")
            return
        body = json.dumps(figures()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: the program's standard error is its own."""


class _Quiet(HTTPServer):
    request_queue_size = 16  # of those who wait: a handful

    def server_bind(self) -> None:
        """Bind, and ask no name server who this is, as the base does."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", 0

    def handle_error(self, *_: object) -> None:
        """Say nothing of somebody who went away before the answer."""


class _SocketServer(_Quiet):
    address_family = socket.AF_UNIX
    allow_reuse_address = False


class _NetworkServer(_Quiet):
    def __init__(self, address: tuple[str, int], handler: type[_Answer], kind: int) -> None:
        self.address_family = kind
        super().__init__(address, handler)


class _Listener:
    """A server, and the thread that waits for who asks."""

    def __init__(self, server: HTTPServer, address: tuple[str, int] | None) -> None:
        self.server, self.address = server, address
        self.open = True
        self.pid = os.getpid()
        self.thread = threading.Thread(target=self._wait, name="gabion-monitor", daemon=True)
        self.thread.start()

    @property
    def where(self) -> str:
        place = self.server.server_address
        if self.address is None:
            return os.fsdecode(place)  # type: ignore[arg-type]
        host, port = str(place[0]), place[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _wait(self) -> None:
        while self.open:
            try:
                self.server.handle_request()
            except (OSError, ValueError):  # closed by stop()
                return

    def close(self) -> None:
        """Stop, and take the socket away."""
        self.open = False
        self._wake()
        self.thread.join(PATIENCE)
        self.leave()

    def _wake(self) -> None:
        """Be the last who asks: the thread waits for one."""
        with socket.socket(self.server.address_family, socket.SOCK_STREAM) as one:
            one.settimeout(1)
            with suppress(OSError):  # the socket is gone, and so will the thread be
                one.connect(self.server.server_address)

    def leave(self) -> None:
        """Let the socket go, without a word to whoever else has it."""
        self.server.server_close()
        if self.address is None and self.pid == os.getpid():
            with suppress(OSError):
                os.unlink(self.where)


def _start_by_environment(said: str) -> None:
    """Start as GABION_MONITOR says. A program should not fail for want of somebody who looks at it."""
    try:
        start(None if said.strip() in ("1", "yes", "true", "on") else said.strip())
    except (OSError, ValueError) as error:
        warnings.warn(f"GABION_MONITOR={said}: nobody can see this process: {error}", RuntimeWarning, stacklevel=2)


def _after_fork() -> None:
    """In a child that was forked: the parent's thread is not here, and its socket is the parent's."""
    global _lock, _listener
    _lock = threading.RLock()
    listener, _listener = _listener, None
    if listener is None:
        return
    listener.leave()
    if listener.address is None:
        with suppress(OSError, RuntimeError):  # no descriptors, no threads: the child has other worries
            start()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)
