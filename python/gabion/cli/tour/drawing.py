"""Pictures for the page: inline SVG, drawn by matplotlib, in colours that follow the page's light or dark setting."""

import io
from collections.abc import Callable
from html import escape
from typing import Any

# What matplotlib draws with, and the page's own colour that takes its place.
INK, SOFT, LINE = "#000001", "#000002", "#000003"
PLAIN, PICKLES, GABION = "#000004", "#000005", "#000006"
COLOURS = {INK: "ink", SOFT: "soft", LINE: "line", PLAIN: "plain", PICKLES: "pickles", GABION: "gabion"}

NOT_INSTALLED = "The picture needs matplotlib: <code>pip install matplotlib</code>."


def svg(draw: Callable[[], Any], label: str) -> str:
    """The figure that `draw` makes. Without matplotlib, a sentence that says how to get it."""
    try:
        import matplotlib as mpl
    except ImportError:
        return f'<p class="note">{NOT_INSTALLED}</p>'
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "gabion", "font.family": "sans-serif", "font.size": 9}
    drawn = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context(settings):
        draw().savefig(drawn, format="svg", transparent=True, metadata=nothing)
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    for colour, name in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def plain_axes(axes: Any) -> None:
    """Lines and labels in the page's soft colours, and no frame."""
    axes.tick_params(which="both", length=0, labelcolor=SOFT)
    axes.spines[:].set_visible(False)
