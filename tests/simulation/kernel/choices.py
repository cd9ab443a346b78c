"""Every decision of a schedule, drawn from one seed and written down, so that a schedule can be replayed and cut short.

A decision is the index of an option. Option 0 is the quiet one everywhere: go on with the same task, no fault, nothing
happens. A schedule is therefore a list of small integers; whatever is missing at its end is 0, and replacing a number
by 0 takes one disturbance out of the story. That is all that the shrinker needs.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Final

_OF_IDS: Final = 0x5EED_1D5
_OF_BITS: Final = 0x5EED_B17
_OF_NATURE: Final = 0x5EED_A7


class Menu:
    """Options with weights, the quiet one first."""

    __slots__ = ("_bounds", "_total", "options")

    def __init__(self, *options: tuple[object, int]) -> None:
        kept = [options[0], *(option for option in options[1:] if option[1] > 0)]
        self.options = tuple(option for option, _ in kept)
        self._bounds = tuple(accumulate(weight for _, weight in kept))
        self._total = self._bounds[-1]

    def index_at(self, share: float) -> int:
        """The option at a point of 0 to 1 (exclusive) of all weights."""
        return bisect(self._bounds, share * self._total)


class Choices:
    """The decisions of one schedule. With `replay`, those; after its end every decision is 0."""

    def __init__(self, seed: int, replay: Sequence[int] | None = None) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._replay = replay
        self._ids = Random(seed ^ _OF_IDS)
        self._bits = Random(seed ^ _OF_BITS)
        self.taken: list[int] = []

    def pick(self, menu: Menu) -> object:
        """One option of the menu."""
        if len(menu.options) == 1:
            return menu.options[0]
        return menu.options[self._next(menu)]

    def number(self, menu_size: int) -> int:
        """0 to `menu_size` - 1, all alike."""
        if menu_size <= 1:
            return 0
        drawn = int(self._random.random() * menu_size) if self._replay is None else self._replayed() % menu_size
        self.taken.append(drawn)
        return drawn

    def nature(self, size: int) -> int:
        """What kind of schedule this seed has, of so many. No decision: other seeds stay what they are whatever kinds
        there are, and no schedule is simpler for being of another kind."""
        return Random(self._seed ^ _OF_NATURE).randrange(size)

    def random_bytes(self, size: int) -> bytes:
        """For ids. Not a decision: no schedule is simpler for having other ids."""
        return self._ids.randbytes(size)

    def random_bits(self, count: int) -> int:
        """For tokens. No decision either."""
        return self._bits.getrandbits(count)

    def _next(self, menu: Menu) -> int:
        if self._replay is not None:
            drawn = self._replayed()
            drawn = drawn if drawn < len(menu.options) else 0
        else:
            drawn = menu.index_at(self._random.random())
        self.taken.append(drawn)
        return drawn

    def _replayed(self) -> int:
        assert self._replay is not None
        place = len(self.taken)
        return self._replay[place] if place < len(self._replay) else 0
