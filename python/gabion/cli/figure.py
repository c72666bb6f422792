"""Figures as a reader would say them."""


def size(count: float) -> str:
    """Bytes."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        value = count / 2**power
        if value >= 1:
            return f"{value:,.0f} {unit}" if value >= 20 else f"{value:,.1f} {unit}"
    return f"{count:,.0f} B"


def plural(count: int, noun: str) -> str:
    """A count of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
