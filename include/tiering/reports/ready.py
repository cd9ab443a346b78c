"""Whether a run could start, check by check."""

from collections.abc import Sequence

from include.tiering.reports.presentation import Presentation, Table
from include.tiering.tasks.readiness import Check


def present_ready(checks: Sequence[Check]) -> Presentation:
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


def _row(check: Check) -> tuple[str, ...]:
    result = "ok" if check.ok else "wait" if check.waitable else "failed"
    return (check.name, result, check.message)
