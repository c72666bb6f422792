"""The pictures of the `images` benchmark: rates by threads, resident memory over time, and a contact sheet."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from harness import Result

MIB = 1 << 20
_COLOURS = {
    "gabion, malloc": "#e59866",
    "gabion": "#c0392b",
    "Pillow, gap 2": "#85c1e9",
    "Pillow": "#2980b9",
    "libvips": "#27ae60",
    "OpenCV": "#8e44ad",
    "Skia": "#f39c12",
    "ImageMagick": "#7f8c8d",
}
# The contact sheet: a thumbnail, and a part of it by every subject, each pixel a square of this many.
_SHEET_CASE = "quality: full, 150 px"
_ZOOM = 4
_PART = 48


def _colour(subject: str) -> str:
    return next((colour for name, colour in _COLOURS.items() if subject.startswith(name)), "#34495e")


def _pyplot() -> Any:
    """matplotlib's drawing calls, for files alone. Raises ``ImportError`` where it is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def rates(
    result: Result,
    folder: Path,
    case_of: Callable[[str, int, int], str],
    sides: tuple[int, ...],
    counts: tuple[int, ...],
) -> Path | None:
    """Megapixels per second over the number of threads, and the memory that it takes, a panel for each job."""
    panels = [(mode, side) for mode in ("full", "shrink") for side in sides]
    measured = {row["case"] for row in result.rows}
    panels = [one for one in panels if any(case_of(*one, threads) in measured for threads in counts)]
    if not panels:
        return None
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        2, len(panels), figsize=(3.3 * len(panels), 6), sharex=True, squeeze=False, layout="constrained"
    )
    shown = {}
    for column, (mode, side) in enumerate(panels):
        cases = {threads: case_of(mode, side, threads) for threads in counts}
        subjects = dict.fromkeys(row["subject"] for row in result.rows if row["case"] in cases.values())
        for line, metric in enumerate(("megapixels_per_s", "peak_rss")):
            axis = axes[line][column]
            for subject in subjects:
                found = {threads: result.row((case, subject, metric)) for threads, case in cases.items()}
                points = [(threads, row["median"]) for threads, row in found.items() if row]
                own = subject == "gabion"
                (shown[subject],) = axis.plot(
                    *zip(*points),
                    color=_colour(subject),
                    marker="o",
                    markersize=4,
                    linewidth=2.2 if own else 1.2,
                    zorder=3 if own else 2,
                )
            axis.set(xscale="log", ylim=(0, None))
            axis.set_xticks(counts, [str(threads) for threads in counts])
            axis.minorticks_off()
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][column].set_title(f"{mode} decode to {side} px", fontsize=10)
        axes[1][column].set_xlabel("threads")
    axes[0][0].set_ylabel("megapixels a second")
    axes[1][0].set_ylabel("peak memory above idle, MiB")
    figure.legend(shown.values(), shown.keys(), fontsize=8, loc="outside lower center", ncols=len(shown), frameon=False)
    path = folder / "images.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def service(result: Result, folder: Path) -> Path | None:
    """Resident memory over time, a line for each subject."""
    runs = {
        subject: reports[0]
        for (case, subject), reports in result.extras.items()
        if case.startswith("service") and "readings" in reports[0]
    }
    if not runs:
        return None
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(9.5, 4.2), layout="constrained")
    for subject, report in runs.items():
        seconds, resident = zip(*report["readings"])
        own = subject == "gabion"
        axis.plot(
            seconds,
            [bytes_ / MIB for bytes_ in resident],
            color=_colour(subject),
            linewidth=1.8 if own else 1.1,
            zorder=3 if own else 2,
            label=subject,
        )
    axis.axvline(max(report["served"] for report in runs.values()), color="#7f8c8d", linestyle=":", linewidth=1)
    axis.text(max(report["served"] for report in runs.values()), axis.get_ylim()[1], " idle", fontsize=8, va="top")
    axis.set(xlabel="seconds", ylabel="resident memory, MiB", ylim=(0, None), xlim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=8, loc="outside lower center", ncols=len(runs), frameon=False)
    path = folder / "images-rss.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def contact_sheet(result: Result, folder: Path) -> Path | None:
    """The same part of the same thumbnails by every subject, each pixel a square, so that quality can be seen."""
    found = {
        subject: reports[0] for (case, subject), reports in result.extras.items() if case == _SHEET_CASE and reports
    }
    names = next((list(report["pictures"]) for report in found.values() if report.get("pictures")), [])
    if not names:
        return None
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        print("missing: Pillow (make bench-setup), so no contact sheet", file=sys.stderr)
        return None
    gap, cell, title, label = 14, 150, 30, 18
    zoomed = _PART * _ZOOM
    sheet = Image.new(
        "RGB",
        (gap + cell + gap + len(found) * (zoomed + gap), title + len(names) * (zoomed + label + gap)),
        "white",
    )
    draw = ImageDraw.Draw(sheet)
    small, large = ImageFont.load_default(11), ImageFont.load_default(13)
    draw.text((gap, 9), "the thumbnail", fill="#34495e", font=large)
    for row, name in enumerate(names):
        top = title + row * (zoomed + label + gap)
        pictures = {
            subject: Image.open(BytesIO(base64.b64decode(report["pictures"][name]))).convert("RGB")
            for subject, report in found.items()
        }
        first = next(iter(pictures.values()))
        place = _part(first)
        sheet.paste(first, (gap + (cell - first.width) // 2, top + (zoomed - first.height) // 2))
        for column, (subject, picture) in enumerate(pictures.items()):
            left = gap + cell + gap + column * (zoomed + gap)
            if row == 0:
                draw.text((left, 9), subject, fill=_colour(subject), font=large)
            sheet.paste(picture.crop(place).resize((zoomed, zoomed), Image.Resampling.NEAREST), (left, top))
            told = f"{found[subject]['psnr_of'][name]:.1f} dB"
            draw.text((left, top + zoomed + 2), told, fill="#34495e", font=small)
    path = folder / "images-sheet.png"
    sheet.save(path)
    return path


def _part(picture: Any) -> tuple[int, int, int, int]:
    """The square with the most detail, which is where filters differ."""
    from PIL import ImageFilter, ImageStat

    edges = picture.convert("L").filter(ImageFilter.FIND_EDGES)
    places = [
        (left, top, left + _PART, top + _PART)
        for left in range(0, max(1, picture.width - _PART + 1), 10)
        for top in range(0, max(1, picture.height - _PART + 1), 10)
    ]
    return max(places, key=lambda place: ImageStat.Stat(edges.crop(place)).mean[0])
