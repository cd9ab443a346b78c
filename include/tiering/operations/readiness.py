"""What must hold before a run starts: each check has a name, a result, and says whether waiting can help.

And the report of it, check by check, with the partitions that a run could work on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from include.tiering.errors import (
    BrokersLoginError,
    ForeignClusterError,
    ForeignStoreError,
    RemoteStoreMissingError,
    SettingError,
    StorePlaceUnknownError,
    TieringError,
)
from include.tiering.model.reasons import reason_members
from include.tiering.operations.partition_readiness import PartitionReadiness
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count, labels

_WAITING_CANNOT_HELP: Final = (
    BrokersLoginError,
    ForeignClusterError,
    ForeignStoreError,
    RemoteStoreMissingError,
    SettingError,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `message` says what was found; if not `ok`, also what to do.

    `needed`: a run stops for it. One that is not ok and not needed is a remark: `message` says what that means.
    """

    name: str
    ok: bool
    waitable: bool
    message: str
    needed: bool = True

    @property
    def holds(self) -> bool:
        return self.ok or not self.needed

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a run may start, and with which partitions.

    `partitions` are looked at only if every check holds. A run of no partition at all may start: it ends at once.
    `needs_one`: a run makes no sense while every partition waits.
    """

    checks: tuple[Check, ...]
    partitions: tuple[PartitionReadiness, ...] = ()
    needs_one: bool = True

    @property
    def ready(self) -> bool:
        """Every check holds and, where a run needs one, not all partitions wait for something that passes."""
        there = [one for one in self.partitions if one.ready or one.waits]
        all_wait = bool(there) and all(one.reason and one.reason.retriable for one in there)
        return self.holds and not (self.needs_one and all_wait)

    @property
    def holds(self) -> bool:
        """Every check holds, whatever single partitions wait for."""
        return all(check.holds for check in self.checks)

    @property
    def waitable(self) -> bool:
        """Whether waiting may mend all that is missing."""
        return all(check.waitable for check in self.checks)

    @property
    def waiting(self) -> tuple[PartitionReadiness, ...]:
        """Partitions that are not ready, but for those of deleted topics, which wait for nothing."""
        return tuple(one for one in self.partitions if one.waits)

    @property
    def deleted(self) -> tuple[PartitionReadiness, ...]:
        """Partitions of deleted topics."""
        return tuple(one for one in self.partitions if not one.ready and not one.waits)

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each check that does not hold."""
        return tuple(str(check) for check in self.checks if not check.holds)

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each thing that is missing and that this run does without."""
        return tuple(str(check) for check in self.checks if not check.ok and not check.needed)


def run_checks(
    probes: Mapping[str, Callable[[], str]], *, does_without: Mapping[str, str] = MappingProxyType({})
) -> tuple[Check, ...]:
    """Run every probe, in order; a probe answers what it found or raises a TieringError.

    `does_without`: names of checks that need not hold, each with what it means for the run that they do not. What
    waiting cannot mend stops every run all the same.
    """
    return tuple(_run(name, probe, does_without.get(name)) for name, probe in probes.items())


def _run(name: str, probe: Callable[[], str], without: str | None) -> Check:
    try:
        return Check(name, True, True, probe())
    except TieringError as error:
        # `migrate` records the place behind the schema, in a transaction of its own: a look may fall between the two.
        waitable = isinstance(error, StorePlaceUnknownError) or not isinstance(error, _WAITING_CANNOT_HELP)
        if without is not None and waitable:
            return Check(name, False, True, f"{error}; this run goes on: {without}", needed=False)
        return Check(name, False, waitable, str(error))


MOST_NAMED: Final = 20


def present_ready(readiness: Readiness, *, all_of_them: bool = False) -> Presentation:
    """`all_of_them`: ok only if no partition waits."""
    ok = readiness.ready and not (all_of_them and readiness.waiting)
    return Presentation(
        lambda: _document(readiness, ok),
        lambda: _tables(readiness),
        summary_of(readiness),
        ok=ok,
    )


def summary_of(readiness: Readiness) -> str:
    """In one line."""
    if not readiness.holds:
        return f"not ready: {', '.join(check.name for check in readiness.checks if not check.holds)}"
    there = len(readiness.partitions) - len(readiness.deleted)
    words = f"{there - len(readiness.waiting)} of {count(there, 'partition')} ready" if there else "ready"
    words += f"; {len(readiness.deleted)} of deleted topics" if readiness.deleted else ""
    return words if readiness.ready else f"not ready: {words}"


def waiting_lines(readiness: Readiness) -> list[str]:
    """Which partitions wait and why: the first `MOST_NAMED`, and how many more."""
    names = TopicNames(one.topic_id_partition for one in readiness.partitions)
    lines = [_line(one, names) for one in readiness.waiting[:MOST_NAMED]]
    more = len(readiness.waiting) - len(lines)
    return [*lines, f"and {more} more: ./tiering ready"] if more else lines


def _line(one: PartitionReadiness, names: TopicNames) -> str:
    return names.partition(one.topic_id_partition) + str(one).removeprefix(str(one.topic_id_partition))


def _document(readiness: Readiness, ok: bool) -> Document:
    return {
        "ready": ok,
        "checks": [
            {"name": c.name, "ok": c.ok, "waitable": c.waitable, "message": c.message} for c in readiness.checks
        ],
        "partitions": [
            {
                **labels(one.topic_id_partition),
                "ready": one.ready,
                **reason_members(one.reason),
                "waitable": one.reason is None or one.reason.retriable,
                "detail": one.detail,
            }
            for one in readiness.partitions
        ],
    }


def _tables(readiness: Readiness) -> tuple[Table, ...]:
    checks = Table("checks", ("check", "result", "found"), tuple(map(_row, readiness.checks)))
    names = TopicNames(one.topic_id_partition for one in readiness.partitions)
    waiting = _named("waiting", readiness.waiting, names)
    return (checks, *waiting, *_named("nothing to wait for", readiness.deleted, names))


def _named(title: str, partitions: Sequence[PartitionReadiness], names: TopicNames) -> tuple[Table, ...]:
    """No table without a partition."""
    rows = tuple((names.partition(one.topic_id_partition), str(one.reason), one.detail) for one in partitions)
    return (Table(title, ("partition", "why", "found"), rows),) if rows else ()


def _row(check: Check) -> tuple[str, ...]:
    result = "ok" if check.ok else "not needed" if check.holds else "wait" if check.waitable else "failed"
    return (check.name, result, check.message)
