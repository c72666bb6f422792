"""The subjects of the `images` benchmark, each with the settings that its users would pick for the job.

``small(data, size, full)`` decodes, and makes smaller with the library's good filter: ``full`` from all pixels of the
file, otherwise from what the decoder gives when it is asked for no more than twice the new size. ``saved(image)`` gives
the bytes of a JPEG file of quality 80, with colours at half the resolution. ``pixels(image)`` gives an array of RGB.
"""

from __future__ import annotations

import importlib
import os
from io import BytesIO
from typing import Any

QUALITY = 80
# How much larger than the new size the decoder's picture may be; Pillow's `thumbnail` and libvips take 2, too.
GAP = 2


class Gabion:
    """`gabion.Image`, which makes the picture smaller while it is decoded."""

    fulls = True

    def __init__(self, threads: int) -> None:
        import gabion

        self.open = gabion.Image.open

    @staticmethod
    def version() -> str:
        """What stands behind the name."""
        return ""

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        return self.open(data, max_size=max(size), scaled=not full, mode="RGB", upright=False, metadata=False)

    def saved(self, image: Any) -> bytes:
        """See the module."""
        out = BytesIO()
        image.save(out, format="JPEG", quality=QUALITY)
        return out.getvalue()

    def pixels(self, image: Any) -> Any:
        """See the module."""
        import numpy

        return numpy.asarray(image)


class Pillow:
    """Pillow; `draft`, as its own `thumbnail` uses it, where the picture need not be full."""

    gap: float | None = None

    def __init__(self, threads: int) -> None:
        from PIL import Image

        self.image = Image

    @staticmethod
    def version() -> str:
        """The version."""
        import PIL

        return PIL.__version__

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        image = self.image.open(BytesIO(data))
        if not full:
            image.draft("RGB", (size[0] * GAP, size[1] * GAP))
        if image.mode != "RGB":
            image = image.convert("RGB")
        gap = self.gap if full else float(GAP)
        return image.resize(size, self.image.Resampling.LANCZOS, reducing_gap=gap)

    def saved(self, image: Any) -> bytes:
        """See the module."""
        out = BytesIO()
        image.save(out, "JPEG", quality=QUALITY)
        return out.getvalue()

    def pixels(self, image: Any) -> Any:
        """See the module."""
        import numpy

        return numpy.asarray(image)


class PillowGap(Pillow):
    """Pillow with its own means of boxes before the filter, which gabion takes, too."""

    gap = float(GAP)


class Vips:
    """libvips through pyvips. One worker for each pipeline, as the threads are the benchmark's: the fastest way."""

    def __init__(self, threads: int) -> None:
        os.environ["VIPS_CONCURRENCY"] = "1"
        import pyvips

        self.image = pyvips.Image
        # Otherwise a picture that was made before is not made again.
        pyvips.cache_set_max(0)

    @staticmethod
    def version() -> str:
        """The version of the library."""
        import pyvips

        return ".".join(str(pyvips.version(part)) for part in range(3))

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        if not full:
            return self.image.thumbnail_buffer(data, size[0], height=size[1], size="force", no_rotate=True)
        image = self.image.new_from_buffer(data, "", access="sequential")
        return image.resize(size[0] / image.width, vscale=size[1] / image.height, kernel="lanczos3")

    def saved(self, image: Any) -> bytes:
        """See the module."""
        return image.jpegsave_buffer(Q=QUALITY, keep="none")

    def pixels(self, image: Any) -> Any:
        """See the module."""
        return image.flatten(background=255).numpy() if image.hasalpha() else image.numpy()


class OpenCV:
    """OpenCV; `INTER_AREA` is its filter for making smaller."""

    def __init__(self, threads: int) -> None:
        import cv2
        import numpy

        # The benchmark's threads are all there are; its own are slower, the more so beside them.
        cv2.setNumThreads(1)
        self.cv2, self.numpy = cv2, numpy

    @staticmethod
    def version() -> str:
        """The version."""
        import cv2

        return cv2.__version__

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        from images_photos import size_of

        cv2, way = self.cv2, self.cv2.IMREAD_COLOR
        if not full:
            times = min(old // (new * GAP) for old, new in zip(size_of(data), size))
            reduced = (
                (8, cv2.IMREAD_REDUCED_COLOR_8),
                (4, cv2.IMREAD_REDUCED_COLOR_4),
                (2, cv2.IMREAD_REDUCED_COLOR_2),
            )
            way = next((flag for least, flag in reduced if times >= least), way)
        image = cv2.imdecode(self.numpy.frombuffer(data, self.numpy.uint8), way | cv2.IMREAD_IGNORE_ORIENTATION)
        return cv2.resize(image, size, interpolation=cv2.INTER_AREA)

    def saved(self, image: Any) -> bytes:
        """See the module."""
        return self.cv2.imencode(".jpg", image, [self.cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()

    def pixels(self, image: Any) -> Any:
        """See the module."""
        return self.cv2.cvtColor(image, self.cv2.COLOR_BGR2RGB)


class Skia:
    """skia-python; linear with mipmaps is its filter for making smaller. It keeps the interpreter's lock."""

    def __init__(self, threads: int) -> None:
        import skia

        self.skia = skia
        self.filter = skia.SamplingOptions(skia.FilterMode.kLinear, skia.MipmapMode.kLinear)

    @staticmethod
    def version() -> str:
        """The version."""
        import skia

        return skia.__version__

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        skia = self.skia
        codec = skia.Codec.MakeFromData(skia.Data.MakeWithoutCopy(data))
        info = codec.getInfo().makeColorType(skia.ColorType.kRGBA_8888_ColorType)
        if not full:
            least = max(new * GAP / old for old, new in zip((info.width(), info.height()), size))
            info = info.makeDimensions(codec.getScaledDimensions(min(1.0, least)))
        bitmap = skia.Bitmap()
        bitmap.allocPixels(info)
        result = codec.getPixels(bitmap.pixmap())
        if result != skia.Codec.Result.kSuccess:
            raise ValueError(f"Skia: {result}")
        pixels = skia.Image.MakeFromBitmap(bitmap)
        return pixels.resize(*size, self.filter)

    def saved(self, image: Any) -> bytes:
        """See the module."""
        return bytes(image.encodeToData(self.skia.EncodedImageFormat.kJPEG, QUALITY))

    def pixels(self, image: Any) -> Any:
        """See the module."""
        return image.toarray(colorType=self.skia.ColorType.kRGBA_8888_ColorType)[:, :, :3]


class Wand:
    """ImageMagick through Wand; its hint `jpeg:size` has the decoder scale."""

    def __init__(self, threads: int) -> None:
        os.environ["MAGICK_THREAD_LIMIT"] = "1"
        from wand.image import Image

        self.image = Image

    @staticmethod
    def version() -> str:
        """The version of the library."""
        from wand.version import MAGICK_VERSION

        return MAGICK_VERSION.split()[1]

    def small(self, data: bytes, size: tuple[int, int], full: bool) -> Any:
        """See the module."""
        image = self.image()
        if not full:
            image.options["jpeg:size"] = f"{size[0] * GAP}x{size[1] * GAP}"
        image.read(blob=data)
        image.resize(*size, filter="lanczos")
        return image

    def saved(self, image: Any) -> bytes:
        """See the module."""
        with image:
            image.strip()
            image.compression_quality = QUALITY
            return image.make_blob("jpeg")

    def pixels(self, image: Any) -> Any:
        """See the module."""
        import numpy

        return numpy.array(image.export_pixels(channel_map="RGB"), numpy.uint8).reshape(image.height, image.width, 3)


SUBJECTS = {
    "gabion": Gabion,
    "pillow": Pillow,
    "pillow-gap": PillowGap,
    "vips": Vips,
    "opencv": OpenCV,
    "skia": Skia,
    "wand": Wand,
}
_NAMES = {
    "pillow": "Pillow",
    "pillow-gap": "Pillow, gap 2,",
    "vips": "libvips",
    "opencv": "OpenCV",
    "skia": "Skia",
    "wand": "ImageMagick",
}
_MODULES = {
    "pillow": "PIL",
    "pillow-gap": "PIL",
    "vips": "pyvips",
    "opencv": "cv2",
    "skia": "skia",
    "wand": "wand.image",
}


def labels(missing: list[str]) -> dict[str, str]:
    """Name to label, with its version, of every subject that is installed; the others are named in ``missing``."""
    found = {"gabion": "gabion"}
    for name, module in _MODULES.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            if name != "pillow-gap":
                told = "ImageMagick and Wand" if name == "wand" else f"{_NAMES[name]} (make bench-setup; {error})"
                missing.append(told)
            continue
        except OSError as error:
            missing.append(f"{_NAMES[name]} ({error})")
            continue
        found[name] = f"{_NAMES[name]} {SUBJECTS[name].version()}"
    return found
