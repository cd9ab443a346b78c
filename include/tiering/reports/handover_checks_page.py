"""docs/handover-checks.md: every pitfall with who looks for it, every check with what it promises."""

from include.tiering.model.handover import STEPS
from include.tiering.model.handover_pitfalls import CHECKS, PITFALLS


def checks_page(note: str) -> str:
    """`note` says that the page is generated."""
    lines = [
        "# What a hand-over checks",
        "",
        note,
        "",
        "## What can go wrong, and who looks",
        "",
        "| what | what would follow | checked before the switch | watched after it | why not checked |",
        "|---|---|---|---|---|",
    ]
    for one in PITFALLS:
        before = ", ".join(f"`{name}`" for name in one.checks)
        after = ", ".join(f"`{name}`" for name in one.watched)
        lines.append(f"| {one.what} | {one.consequence} | {before} | {after} | {one.why_none} |")
    lines += ["", "## Every check", "", "| check | it passes if | at |", "|---|---|---|"]
    for check in CHECKS:
        steps = ", ".join(step for step in STEPS if step in check.steps)
        lines.append(f"| `{check.name}` | {check.promise} | {steps} |")
    return "\n".join(lines) + "\n"
