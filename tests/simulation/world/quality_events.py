"""Verdicts: a stored segment rots, and the gate sees it; what failed passes after all, or is copied anew."""

from include.tiering.model.ids import RemoteLogSegmentId, Uuid
from include.tiering.model.verdict import Verdict
from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.world.event_source import EventSource


class QualityEvents(EventSource):
    """What a quality gate would find in one world. The gate itself is not simulated, what follows from a verdict is."""

    def fails(self) -> None:
        row = self._any(failed=False)
        if row is not None:
            self._world.watch.rotten.add(row.segment_id)
            key = row.key("log")
            content = self._world.store.objects.get(key)
            if content and self._choices.number(2) == 1:
                self._world.store.objects[key] = content[:-1] + bytes([content[-1] ^ 1])
            self._judge(row, Verdict.FAILED)
            self._tell("a segment fails", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def passes(self) -> None:
        """Verified again: it was the judge who erred."""
        row = self._any(failed=True)
        if row is not None:
            self._judge(row, Verdict.PASSED)
            self._tell("a failed segment passes", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def _any(self, *, failed: bool) -> Row | None:
        found = [
            row
            for row in self._world.watch.rows.known.values()
            if row.state == FINISHED and (row.verdict == Verdict.FAILED) == failed
        ]
        return found[self._choices.number(len(found))] if found else None

    def _judge(self, row: Row, verdict: Verdict) -> None:
        segment_id = RemoteLogSegmentId(row.topic_id_partition, Uuid.parse(row.segment_id))
        self._world.admin_metadata.record_verdict(segment_id, verdict, detail="seen by the gate")
