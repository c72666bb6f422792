"""The pool's books, checked from a test."""

import time

from gabion import _native


def check_books() -> None:
    """Check every equation of the pool. They hold while nobody uses it, and the trimmer's steps are short."""
    for _ in range(200):
        try:
            return _native._memory_validate()
        except AssertionError:
            time.sleep(0.05)
    return _native._memory_validate()
