"""What becomes of stored segments: they rot, which the quality check should find; a verdict is wrong, either way."""

from include.tiering.model.segments import RemoteLogSegmentId, Uuid, Verdict
from include.tiering.segments.values import Verification
from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.world.event_source import EventSource


class QualityEvents(EventSource):
    """Of one world. Verdicts here come from unknown rules; those of the quality check are `Runs.verify`."""

    def rots(self) -> None:
        """Nobody says so."""
        row = self._any(failed=False)
        if row is not None:
            self._damage(row)
            self._tell("a stored segment rots", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def fails(self) -> None:
        """Rightly, or not."""
        row = self._any(failed=False)
        if row is not None:
            if self._choices.number(2) == 1:
                self._damage(row)
            self._world.watch.rotten.add(row.segment_id)
            self._world.admin_metadata.record_verdict(_id_of(row), Verdict.FAILED, detail="seen by a verification")
            self._tell("a segment fails", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def passes(self) -> None:
        """Verified again: the verdict was wrong. What the store hides nobody passes."""
        row = self._any(failed=True)
        is_seen = row is not None and row.key("log") not in self._world.store.hidden
        if row is not None and is_seen and self._world.watch.rows.is_right(row):
            metadata, segment_id = self._world.admin_metadata, _id_of(row)
            metadata.record_verification(Verification(segment_id, before=metadata.segment(segment_id)))
            self._tell("a failed segment passes", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def _any(self, *, failed: bool) -> Row | None:
        found = [
            row
            for row in self._world.watch.rows.known.values()
            if row.state == FINISHED and (row.verdict == Verdict.FAILED) == failed
        ]
        return found[self._choices.number(len(found))] if found else None

    def _damage(self, row: Row) -> None:
        """The last byte is lost, the end is cut off, or the log is gone. What rotted once is never right again."""
        self._world.watch.rotten.add(row.segment_id)
        objects, key = self._world.store.objects, row.key("log")
        content = objects.get(key)
        if not content:
            return
        how = self._choices.number(3)
        if how == 2:
            del objects[key]
        else:
            objects[key] = content[:-1] if how else content[:-1] + b"\0"


def _id_of(row: Row) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(row.topic_id_partition, Uuid.parse(row.segment_id))
