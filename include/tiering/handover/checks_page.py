"""docs/handover-checks.md: every pitfall with who looks for it, every check with what it promises."""

from typing import Final

from include.tiering.handover.checks.handover_pitfalls import CHECKS, PITFALLS
from include.tiering.handover.handover import STEPS

_MEASURED: Final = """
## What is measured

`disks-have-room` needs to know how fast producers are. By the leader's own segments: the bytes that came behind the
first of the last ten segments, the active one among them, over the time from that one's last record up to now. So what
was brought in a burst, a backfill or a replay, is not taken for what will come: the longer nothing follows it, the less
it counts. Right behind a burst it does count. Times are those of the records; where they tell nothing (without a
timestamp, or without a rolled segment) the partition counts as nothing, and with clocks that are ahead the last
timestamp stands for now. Partitions are summed by the broker that leads them.
"""


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
    return "\n".join(lines) + "\n" + _MEASURED
