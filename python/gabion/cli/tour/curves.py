"""What the cache did, as a picture: hits at each limit, bytes under one."""

from typing import Any

from gabion.cli.figure import size
from gabion.cli.tour import drawing
from gabion.cli.tour.caches import POLICIES
from gabion.cli.tour.result import CacheResult

STYLES = {"default": (drawing.GABION, "o-"), "lru": (drawing.PICKLES, "s--")}
ROOM_ABOVE = 1.18


def svg(result: CacheResult) -> str:
    """Hit rates over limits on the left, bytes over requests on the right."""
    told = f"Hits at {len({one.max_bytes for one in result.hits})} limits; bytes in the cache, never above its limit"
    return drawing.svg(lambda: _drawn(result), told)


def _drawn(result: CacheResult) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 2.6), layout="constrained")
    hits, filled = figure.subplots(1, 2)
    _hits(hits, result)
    _filled(filled, result)
    for axes in (hits, filled):
        axes.grid(axis="y", color=drawing.LINE, linewidth=0.6)
        drawing.plain_axes(axes)
    return figure


def _hits(axes: Any, result: CacheResult) -> None:
    for policy, text in POLICIES.items():
        colour, style = STYLES[policy]
        runs = [one for one in result.hits if one.policy == policy]
        limits, rates = [one.max_bytes for one in runs], [one.rate for one in runs]
        axes.plot(limits, rates, style, color=colour, markersize=4, label=text)
    axes.legend(loc="lower right", frameon=False, labelcolor="linecolor")
    axes.axhline(result.best, color=drawing.SOFT, linewidth=0.8, linestyle=(0, (4, 4)))
    limits = sorted({one.max_bytes for one in result.hits})
    axes.set_xscale("log", base=2)
    axes.set_xticks(limits, [size(limit) for limit in limits])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title("hits at each limit", loc="left", color=drawing.INK, fontweight="bold", fontsize=10)
    axes.set_title(f"without a limit {result.best:.0%}", loc="right", color=drawing.SOFT, fontsize=9)


def _filled(axes: Any, result: CacheResult) -> None:
    steps = range(1, len(result.filled) + 1)
    axes.plot(list(steps), result.filled, color=drawing.GABION, linewidth=1.5)
    axes.axhline(result.limit_bytes, color=drawing.PLAIN, linewidth=0.8, linestyle=(0, (4, 4)))
    axes.set_ylim(0, result.limit_bytes * ROOM_ABOVE)
    axes.set_xticks([])
    axes.set_yticks([0, result.limit_bytes / 2, result.limit_bytes])
    axes.yaxis.set_major_formatter(lambda value, _: size(value))
    axes.set_title("bytes in the cache", loc="left", color=drawing.INK, fontweight="bold", fontsize=10)
    axes.set_title(f"limit {size(result.limit_bytes)}", loc="right", color=drawing.PLAIN, fontsize=9)
