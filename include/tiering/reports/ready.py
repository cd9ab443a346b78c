"""Whether a run could start, check by check."""

from collections.abc import Sequence
from typing import Protocol

from include.tiering.reports.presentation import Presentation, Table


class CheckItem(Protocol):
    """One check. `waitable`: it may come right by itself."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def waitable(self) -> bool: ...
    @property
    def message(self) -> str: ...


def present_ready(checks: Sequence[CheckItem]) -> Presentation:
    failing = [check.name for check in checks if not check.ok]
    summary = f"not ready: {', '.join(failing)}" if failing else "ready"
    return Presentation(
        lambda: {
            "ready": not failing,
            "checks": [{"name": c.name, "ok": c.ok, "waitable": c.waitable, "message": c.message} for c in checks],
        },
        lambda: (Table("checks", ("check", "result", "found"), tuple(map(_row, checks))),),
        summary,
        ok=not failing,
    )


def _row(check: CheckItem) -> tuple[str, ...]:
    result = "ok" if check.ok else "wait" if check.waitable else "failed"
    return (check.name, result, check.message)
