"""What must hold before a run starts: each check has a name, a result, and says whether waiting can help."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import ForeignStoreError, SettingError, TieringError

_WAITING_CANNOT_HELP: Final = (ForeignStoreError, SettingError)


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `message` says what was found; if not `ok`, also what to do."""

    name: str
    ok: bool
    waitable: bool
    message: str


def run_checks(probes: Mapping[str, Callable[[], str]]) -> tuple[Check, ...]:
    """Run every probe, in order; a probe answers what it found or raises a TieringError."""
    return tuple(_run(name, probe) for name, probe in probes.items())


def _run(name: str, probe: Callable[[], str]) -> Check:
    try:
        return Check(name, True, True, probe())
    except TieringError as error:
        return Check(name, False, not isinstance(error, _WAITING_CANNOT_HELP), str(error))
