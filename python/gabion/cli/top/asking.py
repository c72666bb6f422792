"""Who can be asked, and what they say."""

import errno
import http.client
import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gabion import monitor
from gabion.cli.failure import CommandError, shown

Figures = dict[str, Any]

# Seconds that an answer may take.
PATIENCE = 5.0
# Bytes that an answer may have: some ten thousands of piles and caches.
LONGEST = 16 << 20
# Digits of a process's number, at most.
LONGEST_NUMBER = 10
BUSY = f"no answer within {PATIENCE:g} seconds"
HOW = "start it with GABION_MONITOR=1 in its environment, or call gabion.monitor.start() in it"


class Gone(Exception):
    """Nobody answers there any more."""


class Busy(Exception):
    """Somebody is there, and does not answer in time."""


class Process:
    """A process that can be asked: by its socket, or at a URL."""

    def __init__(self, name: str, connection: http.client.HTTPConnection, path: str = "/") -> None:
        self.name, self.connection, self.path = name, connection, path
        self.said: Figures | Exception | None = None

    def ask(self) -> Figures:
        """Return its figures. Raises Gone where nobody listens, Busy, or CommandError where somebody else does."""
        [said] = ask_all([self])
        if isinstance(said, Exception):
            raise said
        return said

    def let_go(self) -> None:
        """Ask no longer."""
        connected = self.connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        try:
            self.said = self._answer()
        except (Gone, Busy, CommandError) as error:
            self.said = error

    def _answer(self) -> Figures:
        try:
            self.connection.request("GET", self.path)
            answer = self.connection.getresponse()
            body = answer.read(LONGEST + 1)
        except (ConnectionError, FileNotFoundError) as error:
            raise Gone(f"{self.name}: {error.strerror or 'the connection was cut off'}") from None
        except TimeoutError:
            raise Busy from None
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise Busy from None  # too many are waiting already
            raise CommandError(f"{self.name}: {error.strerror or shown(error)}") from None
        except UnicodeError:
            raise CommandError(f"{self.name}: no name of a host") from None
        except http.client.HTTPException:
            raise self._other() from None
        finally:
            self.connection.close()
        if answer.status == 500:
            raise CommandError(f"{self.name}: it could not tell: {shown(body[:500].decode(errors='replace'))}")
        if len(body) > LONGEST:
            raise CommandError(f"{self.name}: an answer of more than {LONGEST >> 20} MiB")
        try:
            found: Figures = json.loads(body) if answer.status == 200 else {}
        except (ValueError, RecursionError):
            found = {}
        if not is_told(found):
            raise self._other()
        return found

    def _other(self) -> CommandError:
        return CommandError(f"{self.name}: what answers there is no monitor of gabion's; for a process, {HOW}")


def ask_all(processes: Sequence[Process]) -> list[Figures | Exception]:
    """Ask them all at one time, and wait for nobody longer than five seconds."""
    asking = [threading.Thread(target=process._ask, daemon=True) for process in processes]
    for one in asking:
        one.start()
    left = PATIENCE
    for one in asking:
        # By steps, as a clock would count what this process was stopped for.
        while one.is_alive() and left > 0:
            one.join(0.05)
            left -= 0.05
    said = [Busy() if process.said is None else process.said for process in processes]
    for process, thread in zip(processes, asking, strict=True):
        if thread.is_alive():
            process.let_go()
            thread.join(PATIENCE)
        process.said = None
    return said


def is_told(found: object) -> bool:
    """Whether an answer has the parts of one, each of its kind. What stands in them is looked at where it is shown."""
    kinds = {"gabion": str, "pid": int, "pool": dict, "piles": list, "caches": list, "command": list}
    if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in kinds.items()):
        return False
    return all(isinstance(one, dict) for one in (*found["piles"], *found["caches"]))


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self.socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


def named(target: str) -> Process:
    """Return the process that a number or a URL names."""
    if target.isascii() and target.isdigit() and len(target) <= LONGEST_NUMBER:
        return _numbered(int(target))
    name = shown(target[:200])
    if "://" not in target:
        try:
            monitor.split_address(target)
        except ValueError:
            raise CommandError(f"{name}: neither a process's number nor a URL such as http://HOST:PORT") from None
        target = f"http://{target}"
    try:
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise ValueError(target)
        url = urlsplit(target)
        return Process(name, _connection(url, url.port), url.path or "/")
    except (ValueError, http.client.HTTPException):
        raise CommandError(f"{name}: not a URL such as http://HOST:PORT") from None


def _connection(url: SplitResult, port: int | None) -> http.client.HTTPConnection:
    kinds: dict[str, type[http.client.HTTPConnection]] = {
        "http": http.client.HTTPConnection,
        "https": http.client.HTTPSConnection,
    }
    if url.scheme not in kinds or not url.hostname:
        raise ValueError(url)
    return kinds[url.scheme](url.hostname, port, timeout=PATIENCE)


def _numbered(pid: int) -> Process:
    for folder in monitor.folders():
        path = Path(folder, f"{pid}.sock")
        if path.exists():
            return Process(f"process {pid}", _OverSocket(str(path)))
    if not Path("/proc", str(pid)).exists():
        raise CommandError(f"process {pid}: there is none")
    raise CommandError(f"process {pid}: nobody can look into it, or it is another user's: {HOW}")


def everybody() -> list[Figures]:
    """Ask all processes that have a socket; take away the sockets of those that are no more.

    Of one that tells no figures, its number is returned, and why as "error".
    """
    found = []
    for folder in monitor.folders():
        monitor.sweep(folder)
        found += [path for path in Path(folder).glob("*.sock") if path.stem.isascii() and path.stem.isdigit()]
    processes = [Process(f"process {path.stem}", _OverSocket(str(path))) for path in found]
    told = []
    for path, process, said in zip(found, processes, ask_all(processes), strict=True):
        if not isinstance(said, Exception):
            told.append(said)
        elif not isinstance(said, Gone):
            error = BUSY if isinstance(said, Busy) else str(said).removeprefix(f"{process.name}: ")
            told.append({"pid": int(path.stem), "error": error})
    return sorted(told, key=lambda one: int(one["pid"]))
