"""A socket that is open for long, by a descriptor that the program may close."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class OwnSocket:
    """A socket, and which one it is.

    A program that closes all descriptors, as one does that becomes a daemon, closes this one, too, and its number is
    the next file's or socket's that anybody opens. So each use looks first whether the number still leads here:
    another's is neither asked, nor answered, nor closed.
    """

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._which = _which(made.fileno())

    def get(self) -> socket.socket | None:
        """Return the socket, or None when it was closed, by close() or by somebody else."""
        number = self._socket.fileno()
        if number < 0:
            return None
        if _which(number) != self._which:
            self._socket.detach()  # or the number would be closed in the end
            return None
        return self._socket

    def close(self) -> None:
        """Close the socket, if its number still leads to it."""
        found = self.get()
        if found is not None:
            with suppress(OSError):
                found.close()


def _which(number: int) -> tuple[int, int] | None:
    with suppress(OSError):
        about = os.fstat(number)
        return about.st_dev, about.st_ino
    return None
