"""`images`: load, resize, save, against the libraries that Python users pick; what a run does stands in
``images_runs.py``, how each library is used in ``images_subjects.py``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import build
import images_photos
import images_subjects
from bars import BEST_PEER, Bar
from harness import Options, Plan, Result, Run

TITLE = "photographs to thumbnails"

MIB = 1 << 20
_THREADS = (1, 2, 16)
_SIDES = (150, 720)
_MODES = {"full": True, "shrink": False}
# How often all photographs are gone through: as often as takes seconds, and with many threads more than once, so that
# the last ones at work do not decide.
_PASSES = {("full", 1): 1, ("full", 2): 2, ("full", 16): 4, ("shrink", 1): 2, ("shrink", 2): 4, ("shrink", 16): 8}
# What the pool is held to in the row that shows a bound.
_LIMIT = 128 * MIB
_SERVICE_MINUTES, _QUICK_SERVICE_MINUTES = 1.0, 0.1
# Trim periods that the service's load lasts: 60 s, the default, at ten minutes.
_SERVICE_PERIODS = 10
# Photographs on the contact sheet.
_SAMPLES = 5
# The folder of what lives as long as this process: references, and made-up pictures.
_kept: list[tempfile.TemporaryDirectory] = []


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    site = "" if options.installed else str(build.site_for(sys.executable))
    subjects = images_subjects.labels(made.missing)
    place = images_photos.folder(options.photos)
    if place is None:
        place = _make_up(site)
        made.notes.append(
            "No photographs: the pictures are made up. GABION_DATA or --photos names a folder of real ones."
        )
    photos = images_photos.load(str(place), "baseline")
    if not photos:
        raise build.BuildFailed(f"{place} holds no baseline JPEG")
    _plan_rates(made, options, str(place), site, subjects)
    _plan_others(made, options, place, site, subjects)
    _plan_limit(made, str(place), site)
    _plan_quality(made, str(place), site, subjects, _samples(photos))
    _plan_service(made, options, str(place), site, subjects)
    megapixels = sum(photo.megapixels for photo in photos)
    made.notes += [
        f"{len(photos)} baseline JPEG files, {megapixels:.0f} megapixels, in memory; thumbnails go to memory as JPEG "
        "of quality 80, 4:2:0. Megapixels are those of the files.",
        "full: every pixel of the file is decoded and counts. shrink: the decoder is asked for no more than twice the "
        "new size (Pillow's draft, libvips' thumbnail, OpenCV's IMREAD_REDUCED, Skia's scaled codec).",
        "One thread for each picture: OpenCV, libvips and ImageMagick are told to start none of their own, which is "
        "their fastest way under threads.",
        "Pillow, gap 2: with reducing_gap=2.0, which takes means of boxes before its filter, as gabion and libvips do. "
        "Pillow without it filters every pixel.",
        "peak_rss is above what was resident when the first thumbnail was made; the files themselves are not in it.",
        "psnr: against Lanczos in floating point on all pixels of the file (decoded by Pillow), median over the "
        "photographs; psnr_least the worst; psnr_saved after JPEG. OpenCV's filter is means, Skia's linear.",
        f"service: random photographs of up to 25 megapixels in random sizes of 64 to 1024, half decoded in full; "
        f"{_SERVICE_PERIODS} trim periods of load, then two of idleness, with all threads alive; one round. start_rss "
        "is read when each thread has made one small thumbnail. gabion begins with "
        "gabion.memory.trim_malloc(), which only the subject 'malloc as it is' leaves out.",
    ]
    return made


def _samples(photos: list[images_photos.Photo]) -> list[str]:
    every = max(1, len(photos) // _SAMPLES)
    return [photo.name for photo in photos[::every][:_SAMPLES]]


def _make_up(site: str) -> Path:
    folder = _folder()
    Run("photographs", "gabion", "images_photos:make_up", {"place": str(folder)}, site=site).execute()
    return folder


def _folder() -> Path:
    _kept.append(tempfile.TemporaryDirectory(prefix="gabion-bench-images-"))
    return Path(_kept[-1].name)


def case_of(mode: str, side: int, threads: int) -> str:
    """The name of a case."""
    return f"{mode}, {side} px, {threads} thread{'s' * (threads > 1)}"


def _plan_rates(made: Plan, options: Options, place: str, site: str, subjects: dict[str, str]) -> None:
    for mode, full in _MODES.items():
        for side in _SIDES:
            for threads in (1, 16) if options.quick else _THREADS:
                case = case_of(mode, side, threads)
                passes = 1 if options.quick else _PASSES[mode, threads]
                for name, label in subjects.items():
                    if name == "pillow-gap" and not full:
                        continue  # its draft takes the gap already
                    args = {
                        "subject": name,
                        "folder": place,
                        "kind": "baseline",
                        "full": full,
                        "side": side,
                        "threads": threads,
                        "passes": passes,
                    }
                    made.runs.append(Run(case, label, "images_runs:rate", args, site=site if name == "gabion" else ""))
                made.bars += _bars_of_rate(mode, side, threads, subjects.get("pillow", "Pillow"))
            if not options.quick:
                many, two = (case_of(mode, side, threads) for threads in (16, 2))
                row, against = (many, "gabion", "megapixels_per_s"), (two, "gabion", "megapixels_per_s")
                made.bars.append(Bar(row, ">=", 0.97, against))
    made.bars.append(Bar((case_of("full", 150, 16), "gabion", "peak_rss"), "<=", 100))


def _bars_of_rate(mode: str, side: int, threads: int, pillow: str) -> list[Bar]:
    case, metric = case_of(mode, side, threads), "megapixels_per_s"
    row = (case, "gabion", metric)
    if (mode, side) == ("full", 150):
        return [Bar(row, ">=", 1.4, (case, "libvips", metric)), Bar(row, ">=", 3.5, (case, pillow, metric))]
    return [Bar(row, ">=", 1.04 if side == 150 else 1.35, (case, BEST_PEER, metric))]


def _plan_others(made: Plan, options: Options, place: Path, site: str, subjects: dict[str, str]) -> None:
    """Progressive JPEG and PNG, which are held as a whole, or come row by row."""
    for kind in sorted(images_photos.kinds(place) - {"baseline"}):
        case = f"{kind}, 150 px, 1 thread"
        for name, label in subjects.items():
            if name == "pillow-gap":
                continue
            args = {
                "subject": name,
                "folder": str(place),
                "kind": kind,
                "full": False,
                "side": 150,
                "threads": 1,
                "passes": 1 if options.quick else 3,
            }
            made.runs.append(Run(case, label, "images_runs:rate", args, site=site if name == "gabion" else ""))


def _plan_limit(made: Plan, place: str, site: str) -> None:
    case = f"{case_of('full', 150, 16)}, pool of {_LIMIT // MIB} MiB"
    args = {
        "subject": "gabion",
        "folder": place,
        "kind": "baseline",
        "full": True,
        "side": 150,
        "threads": 16,
        "passes": 1,
        "limit": _LIMIT,
    }
    made.runs.append(Run(case, "gabion", "images_runs:rate", args, site=site))
    made.bars.append(Bar((case, "gabion", "mapped_peak"), "<=", _LIMIT / MIB))


def _plan_quality(made: Plan, place: str, site: str, subjects: dict[str, str], samples: list[str]) -> None:
    cache = _folder()
    for mode, full in _MODES.items():
        for side in _SIDES:
            case = f"quality: {mode}, {side} px"
            for name, label in subjects.items():
                if name == "pillow-gap" and not full:
                    continue
                args = {
                    "subject": name,
                    "folder": place,
                    "full": full,
                    "side": side,
                    "cache": str(cache),
                    "samples": samples,
                }
                run = Run(case, label, "images_runs:quality", args, site=site if name == "gabion" else "", rounds=1)
                made.runs.append(run)
            # Pillow without a gap is the reference itself, rounded.
            kin = ("Pillow, gap 2", "libvips", "OpenCV") if full else ("Pillow", "libvips", "OpenCV")
            # JPEG loses more than any of them, so what is saved says little of how each makes pictures smaller.
            for metric in ("psnr", "psnr_saved"):
                made.bars += [Bar((case, "gabion", metric), ">=", 1, (case, peer, metric)) for peer in kin]


def _plan_service(made: Plan, options: Options, place: str, site: str, subjects: dict[str, str]) -> None:
    minutes = options.minutes or (_QUICK_SERVICE_MINUTES if options.quick else _SERVICE_MINUTES)
    case = f"service, {minutes:g} min of load, 16 threads"
    labels = subjects | {"gabion-untrimmed": "gabion, malloc as it is"}
    seconds = minutes * 60
    for name in ("gabion", "gabion-untrimmed", "pillow", "vips", "opencv"):
        if name in labels:
            args = {
                "subject": name,
                "folder": place,
                "threads": 16,
                "seconds": seconds,
                "period": seconds / _SERVICE_PERIODS,
            }
            own = site if name.startswith("gabion") else ""
            made.runs.append(Run(case, labels[name], "images_runs:service", args, site=own, rounds=1))
    made.bars.append(Bar((case, "gabion", "idle_vs_start"), "<=", 1.1))


def pictures(result: Result, folder: Path) -> list[Path]:
    """Rates by threads, memory of the service, and a contact sheet. Raises ``ImportError`` without matplotlib."""
    import images_pictures

    made = [
        images_pictures.rates(result, folder, case_of, _SIDES, _THREADS),
        images_pictures.service(result, folder),
        images_pictures.contact_sheet(result, folder),
    ]
    return [path for path in made if path]
