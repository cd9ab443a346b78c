"""Checks before a run starts: each has a name, a result, and says whether waiting can help."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

_WAITING_CANNOT_HELP: Final = (
    BrokersLoginError,
    ForeignClusterError,
    ForeignStoreError,
    RemoteStoreMissingError,
    SettingError,
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `message` says what was found; if not `ok`, it is the message of the error.

    `waitable`: waiting may help. `needed`: the run does not start if the check fails. A failed check that is not needed
    is a remark; its `message` also says what the failure means for the run. `wrong`: a person has to put it right,
    although the run starts.
    """

    name: str
    ok: bool
    waitable: bool
    message: str
    needed: bool = True
    wrong: bool = False

    @property
    def holds(self) -> bool:
        """Whether the run may start in spite of this check."""
        return self.ok or not self.needed

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class Concern:
    """What a probe found that a person has to put right, although a run may start."""

    message: str


Probe = Callable[[], str | Concern]


def run_checks(
    probes: Mapping[str, Probe], *, does_without: Mapping[str, str] = MappingProxyType({})
) -> tuple[Check, ...]:
    """Run every probe, in order; a probe returns what it found or raises a TieringError.

    If several probes fail for the same cause, as without a database, the first one says it and the others refer to it.

    Args:
        probes: the probes by the name of their check.
        does_without: names of checks that the run does not need, each with what a failure means for the run. A failure
            that waiting cannot resolve stops the run in any case.
    """
    checks: list[Check] = []
    for name, probe in probes.items():
        check = _run(name, probe, does_without.get(name))
        checks.append(next((_refer(check, first) for first in checks if _has_cause_of(check, first)), check))
    return tuple(checks)


def _has_cause_of(check: Check, first: Check) -> bool:
    return not check.ok and not first.ok and check.message.startswith(first.message)


def _refer(check: Check, first: Check) -> Check:
    rest = check.message.removeprefix(first.message)
    return replace(check, message=f"not known, for the cause under {first.name}{rest}")


def _run(name: str, probe: Probe, without: str | None) -> Check:
    try:
        found = probe()
        if isinstance(found, Concern):
            return Check(name, False, True, found.message, needed=False, wrong=True)
        return Check(name, True, True, found)
    except TieringError as error:
        # `migrate` records the place in a transaction after that of the schema: a check may run between the two.
        waitable = isinstance(error, StorePlaceUnknownError) or not isinstance(error, _WAITING_CANNOT_HELP)
        if without is not None and waitable:
            return Check(name, False, True, f"{error}; this run continues: {without}", needed=False)
        return Check(name, False, waitable, str(error))
