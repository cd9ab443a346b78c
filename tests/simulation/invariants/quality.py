"""The quality check: what passes is what was written, what fails is not; of two verifications a failed one counts."""

from typing import TYPE_CHECKING, Any

from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.deployment import MOST_MISSING

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_MISSING_OFFSETS = "Q301"
_ABOUT_NEIGHBOURS = (_MISSING_OFFSETS, "Q303")
"""Rules that say nothing about the bytes of the segment that fails by them."""


class QualityInvariants:
    """Verifications of one world, by what their measures were when they were taken."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._was_wrong: dict[tuple[Process, str], bool] = {}
        self._ever_wrong: set[str] = set()
        self._were_going: set[tuple[Process, str]] = set()
        """Not FINISHED any more when they had been measured at."""
        self._failed: dict[str, int] = {}
        """At which step it failed last."""
        self._began_at: dict[tuple[Process, str], int] = {}
        self._found_all: dict[Process, dict[str, bool]] = {}
        """Whether it found all objects of a segment that had not failed before."""
        self._missing_again: set[tuple[Process, str]] = set()
        """Not found by a verification that had listed them as failed: it says what was said before, though somebody may
        have
        cleared them meanwhile."""

    def begins(self, process: Process, metadata: Any) -> None:
        """It is about to ask the store. What is wrong now stays so: nothing is written twice."""
        segment_id = str(metadata.remote_log_segment_id.id)
        self._was_wrong[process, segment_id] = self._is_wrong(segment_id)
        self._began_at[process, segment_id] = self._watch.world.scheduler.steps

    def measured(self, process: Process, metadata: Any, *, has_all: bool, had_failed: bool) -> None:
        """`had_failed`: by the row that it listed."""
        segment_id = str(metadata.remote_log_segment_id.id)
        if has_all or not had_failed:
            self._found_all.setdefault(process, {})[segment_id] = has_all
        else:
            self._missing_again.add((process, segment_id))
        if self._is_wrong(segment_id):
            self._ever_wrong.add(segment_id)
        row = self._watch.rows.known.get(segment_id)
        if row is None or row.state != FINISHED:
            self._were_going.add((process, segment_id))

    def verified(self, row: Row, process: Process | None) -> None:
        """Its verdict is another one now."""
        if row.verdict == "passed" and (process is None or not process.name.startswith("verifier")):
            self._failed.pop(row.segment_id, None)
        if process is None or not process.name.startswith("verifier"):
            return
        if row.verdict == "passed" and self._was_wrong.get((process, row.segment_id)):
            self._watch.broken("a segment that passes is what was written", f"{row} passed {process.name}")
        began = self._began_at.get((process, row.segment_id), 0)
        if row.verdict == "passed" and self._failed.get(row.segment_id, 0) > began:
            self._watch.broken(
                "of two verifications a failure takes precedence",
                f"{row} passed {process.name}, which had begun before",
            )
        if row.verdict != "failed":
            return
        if self._was_hidden(row, process):
            self._ever_wrong.add(row.segment_id)
        else:
            self._failed[row.segment_id] = self._watch.world.scheduler.steps
        if row.state != FINISHED or (process, row.segment_id) in self._were_going:
            self._watch.broken("a segment that is being deleted does not fail", f"{row} by {process.name}")
        if row.verdict_detail.startswith(_MISSING_OFFSETS) and not self._misses_any(row):
            self._watch.broken(
                "offsets that were deleted correctly are not missing", f"{row} by {process.name}: {row.verdict_detail}"
            )
        is_alone = not row.verdict_detail.startswith(_ABOUT_NEIGHBOURS)
        if is_alone and row.segment_id not in self._ever_wrong:
            self._watch.broken("a correct segment does not fail", f"{row} by {process.name}: {row.verdict_detail}")

    def _was_hidden(self, row: Row, process: Process) -> bool:
        """Not all of it was found, and of so few that they may be lost. It is, for all that anybody knows."""
        if (process, row.segment_id) in self._missing_again:
            return True
        begins = self._found_all.get(process, {})
        if begins.get(row.segment_id, True):
            return False
        missing = [one for one, has_all in begins.items() if not has_all]
        known = self._watch.rows.known
        beside = [one for one in missing if one in known and known[one].place == row.place]
        return len(beside) <= MOST_MISSING and (len(missing) == 1 or len(missing) < len(begins))

    def ended(self, process: Process) -> None:
        """With no other verification under way, what one failed is not cleared by an older one."""
        others = [one for one in self._watch.world.alive("verifier") if one is not process]
        if others or self._watch.foreign_history:
            return
        for row in self._watch.rows.known.values():
            has_passed = row.state == FINISHED and row.verdict == "passed" and row.segment_id in self._failed
            if has_passed and not self._watch.rows.is_right(row):
                self._watch.broken("of two verifications a failure takes precedence", f"{row} passed after all")

    def _misses_any(self, row: Row) -> bool:
        """Whether before it, from our log start on, some offset was never remote, and nobody decided so."""
        before = [
            one for one in self._watch.ever_finished.get(row.place, {}).values() if one.end_offset < row.end_offset
        ]
        if not before or self._watch.foreign_history:
            return True
        first = max(min(one.start_offset for one in before), self._watch.rows.log_starts.get(row.place, 0))
        known = {offset for one in before for offset in range(one.start_offset, one.end_offset + 1)}
        return any(
            offset not in known and not self._watch.rows.is_decided(row, offset, offset)
            for offset in range(first, row.start_offset)
        )

    def _is_wrong(self, segment_id: str) -> bool:
        row = self._watch.rows.known.get(segment_id)
        return row is None or not self._watch.rows.is_right(row)
