"""Faults of one kind, counted, with the first of them in words."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class Faults:
    """`count` of them; `first` is a sentence about the one that was met first, empty without any."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, sentence: str, count: int = 1) -> None:
        self.first = self.first or sentence
        self.count += count

    def add_rows(self, bad: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        """One for each True; `describe` gets the row of the first."""
        count = int(np.count_nonzero(bad))
        if count:
            self.add("" if self.first else describe(int(bad.argmax())), count)
