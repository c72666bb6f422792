"""What bytes say: for tests that play random ones, and for fuzz targets that play their own."""

import random
from collections.abc import Callable


class Script:
    """Numbers from bytes, zeros at their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def below(self, end: int) -> int:
        self.at += 1
        return self.data[self.at - 1] % end if self.at <= len(self.data) else 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.data)


def play_random(play: Callable[[bytes], object], seed: int) -> None:
    """Have it play a hundred times what the seed draws."""
    choose = random.Random(seed)
    for turn in range(100):
        data = choose.randbytes(choose.choice([5, 50, 500]))
        try:
            play(data)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, turn {turn}: {data!r}") from error
