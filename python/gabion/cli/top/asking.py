"""Who can be asked, and what they say."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gabion import monitor
from gabion.cli.failure import CommandError, shown

# Seconds that an answer may take.
PATIENCE = 5.0
# Bytes that an answer may have: some thousands of piles and caches.
LONGEST = 16 << 20
HOW = "start it with GABION_MONITOR=1 in its environment, or call gabion.monitor.start() in it"


class Gone(Exception):
    """Nobody answers there any more."""


class Process:
    """A process that can be asked: by its socket, or at a URL."""

    def __init__(self, name: str, connection: http.client.HTTPConnection, path: str = "/") -> None:
        self.name, self.connection, self.path = name, connection, path

    def ask(self) -> dict[str, Any]:
        """Return its figures. Raises Gone where nobody listens, CommandError where somebody else does."""
        try:
            self.connection.request("GET", self.path)
            answer = self.connection.getresponse()
            body = answer.read(LONGEST)
        except (ConnectionError, FileNotFoundError) as error:
            raise Gone(f"{self.name}: {error.strerror or 'the connection was cut off'}") from None
        except TimeoutError:
            raise CommandError(f"{self.name}: no answer within {PATIENCE:g} seconds") from None
        except OSError as error:
            raise CommandError(f"{self.name}: {error.strerror or shown(error)}") from None
        except http.client.HTTPException:
            raise self._other() from None
        finally:
            self.connection.close()
        try:
            found: dict[str, Any] = json.loads(body) if answer.status == 200 else {}
        except (ValueError, RecursionError):
            found = {}
        if not is_told(found):
            raise self._other()
        return found

    def _other(self) -> CommandError:
        return CommandError(f"{self.name}: what answers there is no monitor of gabion's; for a process, {HOW}")


def is_told(found: object) -> bool:
    """Whether an answer has the parts of one, each of its kind. What stands in them is looked at where it is shown."""
    kinds = {"gabion": str, "pid": int, "pool": dict, "piles": list, "caches": list, "command": list}
    return isinstance(found, dict) and all(isinstance(found.get(name), kind) for name, kind in kinds.items())


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
    if target.isascii() and target.isdigit():
        return _numbered(int(target))
    if "://" not in target:
        try:
            monitor.split_address(target)
        except ValueError:
            raise CommandError(
                f"{shown(target)}: neither a process's number nor a URL such as http://HOST:PORT"
            ) from None
        target = f"http://{target}"
    try:
        url = urlsplit(target)
        return Process(shown(target), _connection(url, url.port), url.path or "/")
    except ValueError:
        raise CommandError(f"{shown(target)}: not a URL such as http://HOST:PORT") from None


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


def everybody() -> list[dict[str, Any]]:
    """Ask all processes that have a socket; take away the sockets of those that are no more."""
    told = []
    for path in sorted({path for folder in monitor.folders() for path in Path(folder).glob("*.sock")}):
        try:
            told.append(Process(f"process {path.stem}", _OverSocket(str(path))).ask())
        except Gone:
            if path.stem.isdigit() and not Path("/proc", path.stem).exists():
                path.unlink(missing_ok=True)
        except CommandError:
            continue  # busy, or no process of gabion's: the others are asked all the same
    return told
