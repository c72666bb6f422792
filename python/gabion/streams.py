"""gabion.streams: binary files read, written and copied through warm chunks of the pool, without an allocation.

What reads a file in pieces allocates memory for each piece and frees it again. Here one chunk of up to 1 MiB is lent by
the pool, files read into it and are given views of it, and it goes back at the end.

>>> import io
>>> import gabion.streams
>>> gabion.streams.copy(io.BytesIO(b"stone"), io.BytesIO())
5

Functions: copy(). Classes: Reader, Writer; both count as io.BufferedIOBase.
"""

import io

from gabion._native import Reader, Writer, copy

__all__ = ["Reader", "Writer", "copy"]

io.BufferedIOBase.register(Reader)
io.BufferedIOBase.register(Writer)
