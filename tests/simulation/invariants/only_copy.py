"""The only copy of an offset within retention never goes: whatever people did wrong, an object of the store goes only
if its records are in another complete copy, or below a log start that was raised by right.

Raised by right is what a person decided, or what retention as that person means it no longer covers: as it is set on
the topic that has the name, by the true time, by what was in force when the batch took the partition or came out of a
pause. A copy that the database never saw FINISHED goes by its time without a log start. That somebody approved a plan
is no reason by itself, but for a topic that was deleted.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ALL_TOPICS
from tests.simulation.invariants.retention import is_due, limits_of
from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.records import Record

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

ONLY_COPY: Final = "the only copy of an offset within retention is never deleted"
ABANDONED: Final = "an abandoned copy expires when its offsets are elsewhere"
_BECAUSE_OF_THE_TOPIC: Final = """
    SELECT 1 FROM planned_deletions d JOIN approvals a ON a.run_id = d.run_id WHERE d.segment_id = ? AND d.reason = ?
"""
_Place = tuple[str, int]


class OnlyCopy:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._finished: dict[_Place, dict[str, Row]] = defaultdict(dict)
        """All that ever was, in whatever database."""
        self._decided: dict[_Place, int] = defaultdict(int)
        self._raised: dict[_Place, int] = defaultdict(int)
        """The highest log start that there was by right."""
        self._past_their_time: set[str] = set()
        """Copies that were never FINISHED in the rightful database, when a batch began to delete them."""
        self._asked_ms: dict[Process, int] = {}
        """Since when what is set counts for a batch: it took a partition, or a pause was over."""
        self._paused_ms: dict[Process, int] = {}
        self._taken: dict[Process, TopicIdPartition] = {}
        self._history_since = 0
        """The step at which the rightful database became another one, or an older one."""

    def history_changed(self) -> None:
        """Another database is the rightful one, or an older one of its states."""
        self._history_since = self._world.scheduler.steps

    def finished(self, row: Row) -> None:
        self._finished[row.place][row.segment_id] = row

    def truncated(self, partition: TopicIdPartition, log_start_offset: int) -> None:
        """A person decided so."""
        place = (str(partition.topic_id), partition.partition)
        self._decided[place] = max(self._decided[place], log_start_offset)

    def takes(self, process: Process, partition: TopicIdPartition) -> None:
        self._asked_ms[process] = self._world.scheduler.now_ms
        self._taken[process] = partition
        self._paused_ms.pop(process, None)

    def pause_seen(self, process: Process, paused: frozenset[str]) -> None:
        """It is still on. What of another topic is paused does not stop the batch."""
        taken = self._taken.get(process)
        if taken is not None and paused & {ALL_TOPICS, taken.topic}:
            self._paused_ms[process] = self._world.scheduler.now_ms

    def goes_on(self, process: Process) -> None:
        """To the next group: what it began before a pause it may end."""
        if process in self._paused_ms:
            self._asked_ms[process] = self._paused_ms.pop(process)

    def log_start_raised(self, place: _Place, before: int, after: int, process: Process | None) -> None:
        """Of the rightful database."""
        known = self._watch.rows.known.values()
        passed = [
            row for row in known if row.place == place and row.state == FINISHED and before <= row.end_offset < after
        ]
        self._raised[place] = max(self._raised[place], after)
        for row in passed:
            if not self._may_expire(row, after, process):
                who = "somebody" if process is None else process.name
                self._watch.broken(ONLY_COPY, f"{who} raises the log start above {row}, which retention covers")

    def abandoned_copy_goes(self, row: Row, process: Process | None) -> None:
        """A batch begins to delete it. In another database it may have been FINISHED; in this one nothing could be read
        of it, and what cannot be read raises no log start. So its own age is asked, as of what would raise one."""
        if process not in self._asked_ms:
            return
        limits = limits_of(self._watch, row.topic_id_partition, self._asked_ms[process])
        if any(is_due(self._watch, row, (retention_ms, None), 0) for retention_ms, _ in limits):
            self._past_their_time.add(row.segment_id)
            return
        store = self._world.store
        # What was denied when the process asked may be shown again before it acts; a late write may arrive since then.
        is_seen = row.key("log") in store.objects and row.key("log") not in store.hidden
        is_seen = is_seen and store.written_ms.get(row.key("log"), 0) <= self._asked_ms[process]
        is_seen = is_seen and (process is None or store.shown_step <= process.began_step)
        nowhere = self._nowhere(row)
        if (
            is_seen
            and nowhere
            and process not in self._world.places.misdirected
            and not self._is_of_a_deleted_topic(row)
        ):
            who = "somebody" if process is None else process.name
            self._watch.broken(ABANDONED, f"{who} begins to delete {row}: nothing else has had offset {nowhere[0]}")

    def _nowhere(self, row: Row) -> list[int]:
        """Offsets from the log start on that no copy ever had which became FINISHED, and nobody decided to go without,
        though the row's copy has something of them. Whether they are records is not asked, as the product does not."""
        finished = self._watch.ever_finished.get(row.place, {}).values()
        first = max(row.start_offset, self._watch.rows.log_starts.get(row.place, 0))
        return [
            offset
            for offset in range(first, row.end_offset + 1)
            if not any(one.start_offset <= offset <= one.end_offset for one in finished)
            and not self._watch.rows.is_decided(row, offset, offset)
        ]

    def object_goes(self, key: str, process: Process) -> None:
        """It is there still."""
        name = key.rpartition("/")[2]
        row = next((rows[name[21:43]] for rows in self._finished.values() if name[21:43] in rows), None)
        if row is None or row.segment_id in self._past_their_time or not self._watch.rows.is_right(row):
            return
        lost = self._records(row) - self._elsewhere(row)
        if lost and max(offset for _, offset in lost) >= self._log_start(row.place, process):
            self._watch.broken(ONLY_COPY, f"{process.name} deletes {name} of {row}: {sorted(lost)[0]} is nowhere else")

    def _elsewhere(self, row: Row) -> set[Record]:
        """What other complete copies hold of it."""
        rows = self._watch.rows
        others = [
            other
            for other in self._finished[row.place].values()
            if other.segment_id != row.segment_id
            and other.start_offset <= row.end_offset
            and row.start_offset <= other.end_offset
            and rows.is_right(other)
        ]
        return {record for other in others for record in self._records(other)}

    def _records(self, row: Row) -> set[Record]:
        return set(self._watch.rows.records(row) or ())

    def _log_start(self, place: _Place, process: Process) -> int:
        if process.began_step < self._history_since:
            return self._raised[place]
        return self._watch.rows.log_starts.get(place, 0)

    def _may_expire(self, row: Row, log_start_offset: int, process: Process | None) -> bool:
        if row.end_offset < self._decided[row.place]:
            return True
        if self._is_of_a_deleted_topic(row):
            return True
        since_ms = self._asked_ms.get(process, 0) if process is not None else 0
        kept_bytes = self._kept_bytes(row, log_start_offset, process)
        limits = limits_of(self._watch, row.topic_id_partition, since_ms)
        return any(is_due(self._watch, row, limit, kept_bytes) for limit in limits)

    def _is_of_a_deleted_topic(self, row: Row) -> bool:
        """It was planned as such, and somebody agreed."""
        is_removed = row.topic_id_partition.topic_id in self._world.cluster.removed
        return is_removed and bool(
            self._world.db.rows(_BECAUSE_OF_THE_TOPIC, row.segment_id, str(DeletionReason.TOPIC_DELETED))
        )

    def _kept_bytes(self, row: Row, log_start_offset: int, process: Process | None) -> int:
        partition = row.topic_id_partition
        finished = [one for one in self._watch.live_rows(partition) if one.state == FINISHED]
        kept = sum(one.size_bytes for one in finished if one.end_offset >= log_start_offset)
        if process is None:
            return kept + self._watch.bytes_local_now(partition)
        # What the plan was made with: somebody may have deleted records from the broker since.
        return kept + self._watch.bytes_local_of_any_plan(partition)
