"""A rule of the product broken on purpose, to see that some schedule notices.

The product carries no switches: a mutant puts a wrong function in the place of a right one while it is active. What it
replaces can be watched instead: in a schedule in which the right function is never called, or never says what the wrong
one would not, the mutant changes nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

from include.tiering.expiration.checks import StillPlanned
from include.tiering.model.histories import newest_history

Patch = tuple[Any, str, Any]
"""Where, which attribute, what instead."""


@dataclass(frozen=True, slots=True)
class Call:
    """Of a right function that a mutant replaces by a wrong one. Of `result` and `error` there is one; what an iterator
    gives is a list."""

    wrong: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    error: Exception | None = None


Bites = Callable[[Call], bool]
"""Whether the wrong function would have made a difference. It may say so of a call that makes none."""


def always(_call: Call) -> bool:
    """For a wrong function that does other things: what it changes only a schedule tells."""
    return True


def refused(call: Call) -> bool:
    """For one that does what the right one does, but for its errors."""
    return call.error is not None


def found_one(call: Call) -> bool:
    """For one that does what the right one does, but never finds anything."""
    return call.result is not None


def said_yes(call: Call) -> bool:
    """For one that looks at its arguments alone, and always says no."""
    return bool(call.result)


def said(answer: object) -> Bites:
    """For one that does what the right one does, but never answers so."""
    return lambda call: call.error is None and call.result == answer


def otherwise(call: Call) -> bool:
    """For one that looks at its arguments alone, as the right one does."""
    return call.error is not None or call.wrong(*call.args, **call.kwargs) != call.result


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rule` is what the product promises, `broken` what this mutant does instead.

    `bites` tells of the right functions' calls which ones matter.
    """

    name: str
    rule: str
    broken: str
    patches: Callable[[], list[Patch]]
    bites: Bites = always

    def active(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        for place, attribute, instead in self.patches():
            stack.enter_context(patch.object(place, attribute, instead))
        return stack

    def watched(self, found: Callable[[str], None]) -> AbstractContextManager[Any]:
        """`found` gets its name as soon as a schedule has come to where it bites."""
        stack = ExitStack()
        for place, attribute, wrong in self.patches():
            right = vars(place)[attribute] if attribute in vars(place) else getattr(place, attribute)
            stack.enter_context(patch.object(place, attribute, self._watching(right, wrong, found)))
        return stack

    def _watching(self, right: Any, wrong: Any, found: Callable[[str], None]) -> Any:
        if isinstance(right, property):
            return property(self._watching(right.fget, wrong.fget, found))

        @wraps(right)
        def watching(*args: Any, **kwargs: Any) -> Any:
            try:
                result = right(*args, **kwargs)
            except Exception as error:
                if self.bites(Call(wrong, args, kwargs, error=error)):
                    found(self.name)
                raise
            if isinstance(result, Iterator) and self.bites is not always:
                given = list(result)
                result = iter(given)
            else:
                given = result
            if self.bites(Call(wrong, args, kwargs, given)):
                found(self.name)
            return result

        return watching


class Mutants(list[Mutant]):
    """The mutants of one subject, in the order of their definition."""

    def breaks(
        self, name: str, rule: str, broken: str, bites: Bites = always
    ) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
        """Make a mutant of the function that returns its patches."""

        def add(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
            self.append(Mutant(name, rule, broken, patches, bites))
            return patches

        return add


class Instead:
    """An object of which some methods are replaced."""

    def __init__(self, target: Any, **methods: Any) -> None:
        self.__dict__.update(methods)
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def unasked(batch: Any, _lease: Any, planned: Any) -> Any:
    """In the place of `DeleteBatch._still_planned`: all of it would be planned still, by the history of now."""
    divergences = batch._deleter.metadata.divergences(planned.topic_id_partition)
    return StillPlanned(planned, history=newest_history(divergences))


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does not do it."""
