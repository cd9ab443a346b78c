"""What `doctor` says of handovers that have not ended."""

from collections.abc import Iterable

from include.tiering.handover.contract import Handover
from include.tiering.operations.diagnose import Cause, Diagnosis


def diagnose_handovers(open_handovers: Iterable[Handover]) -> tuple[Diagnosis, ...]:
    """For `doctor`: at which step each is, and what it waits for."""
    return tuple(
        Diagnosis(
            one.topic,
            None,
            Cause.HANDOVER,
            f"a hand-over is {one.state} at {one.step}" + (f": {one.detail}" if one.detail else ""),
            f"./tiering handover {one.topic} --resume, or --undo",
        )
        for one in open_handovers
    )
