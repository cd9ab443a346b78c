"""A rule of the product broken on purpose, to see that some schedule notices.

The product carries no switches: a mutant puts a wrong function in the place of a right one while it is active.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulation.kernel.choices import Choices
from tests.simulation.world.tempers import Tempers

Patch = tuple[Any, str, Any]
"""Where, which attribute, what instead."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rule` is what the product promises, `broken` what this mutant does instead.

    `needs` names a temper: in schedules without it what is replaced is never reached, so they need not be run to know
    that they catch nothing.
    """

    name: str
    rule: str
    broken: str
    patches: Callable[[], list[Patch]]
    needs: str = ""

    def is_reached_in(self, seed: int) -> bool:
        return not self.needs or bool(getattr(Tempers.drawn(Choices(seed)), self.needs))

    def active(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        for place, attribute, instead in self.patches():
            stack.enter_context(patch.object(place, attribute, instead))
        return stack


class Instead:
    """An object of which some methods are replaced."""

    def __init__(self, target: Any, **methods: Any) -> None:
        self.__dict__.update(methods)
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does not do it."""
