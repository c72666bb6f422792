from gabion import memory as memory
from gabion import monitor as monitor
from gabion import numpy as numpy
from gabion import streams as streams
from gabion import testing as testing
from gabion import typing as typing
from gabion._native import ClosedError as ClosedError
from gabion._native import CodecError as CodecError
from gabion._native import CorruptFileError as CorruptFileError
from gabion._native import FormatError as FormatError
from gabion._native import GabionError as GabionError
from gabion._native import Image as Image
from gabion._native import ImageError as ImageError
from gabion._native import ImageInfo as ImageInfo
from gabion._native import LimitError as LimitError
from gabion._native import Pile as Pile
from gabion._native import PileStats as PileStats
from gabion._native import PointerError as PointerError
from gabion._native import __version__ as __version__
from gabion.cache import Cache as Cache
from gabion.cache import CacheStats as CacheStats
from gabion.cache import PutResult as PutResult
from gabion.cache import Table as Table

__all__: list[str]
