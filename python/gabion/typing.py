"""gabion.typing: names for annotations of what gabion's calls take and give.

>>> from gabion.typing import Mode, Size
>>> def blank(mode: Mode, limit: Size = "64 MiB") -> None: ...

Mode and Format are what Image.mode and Image.format are, Filter and Fit what resize() takes, Policy what a Cache takes.
Size is a number of bytes as arguments take it, Time a span of time.
"""

from datetime import timedelta
from typing import Literal, SupportsIndex

__all__ = ["Filter", "Fit", "Format", "Mode", "Policy", "Size", "Time"]

Mode = Literal["L", "LA", "RGB", "RGBA", "CMYK"]
Format = Literal["JPEG", "PNG", "WebP", "TIFF", "BMP", "GIF"]
Filter = Literal["nearest", "box", "bilinear", "bicubic", "lanczos3", "lanczos"]
# How a picture comes into a box of another shape.
Fit = Literal["inside", "cover", "pad"]
# What is evicted when room is needed.
Policy = Literal["default", "lru", "fifo", "s3fifo"]
# Bytes, or text such as "4 GiB".
Size = SupportsIndex | str
# Seconds, or text such as "5 min".
Time = float | str | timedelta
