"""What is watched while a schedule runs. The first thing that breaks ends it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import TopicIdPartition
from tests.simulation.invariants.audits import Audits
from tests.simulation.invariants.handing_over import HandingOver
from tests.simulation.invariants.histories import Histories, RecordedDivergences, ReplacedRecords
from tests.simulation.invariants.leases import Leases
from tests.simulation.invariants.limits import why_to_ask
from tests.simulation.invariants.only_copy import OnlyCopy
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.invariants.promises import Promises
from tests.simulation.invariants.publishing import Publishing
from tests.simulation.invariants.quality import QualityInvariants
from tests.simulation.invariants.retention import require_justified
from tests.simulation.invariants.rows import DELETING, FINISHED, READ_TABLES, STARTED, Row, Rows
from tests.simulation.invariants.sending import Sending
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.records import size_of

if TYPE_CHECKING:
    from tests.simulation.world.world import World


UNTYPED: Final = "no task ends by an untyped error"


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold, with what was seen."""

    invariant: str
    detail: str
    step: int
    now_ms: int

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


class Watch:
    """The invariants of one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.violation: Violation | None = None
        self.cause: BaseException | None = None
        self.rows = Rows(self)
        self.leases = Leases(self)
        self.sending = Sending(self)
        self.replaced_records = ReplacedRecords(self)
        self.divergences = RecordedDivergences(self)
        self.quality = QualityInvariants(self)
        self.audits = Audits(self)
        self.publishing = Publishing(self)
        self.handing_over = HandingOver(self)
        self.promises = Promises(self)
        self.ownership = Ownership(self)
        self.only_copy = OnlyCopy(self)
        self.histories = Histories(self)
        self.ever_finished: dict[tuple[str, int], dict[str, Row]] = {}
        self.were_finished: set[str] = set()
        """Ids of attempts that were FINISHED at some time."""
        self.may_leave_objects: set[str] = set()
        self.rotten: set[str] = set()
        """Ids of attempts whose objects were damaged after they were FINISHED, or were said to be."""
        self.wrote_late: set[str] = set()
        """Attempts of which a write arrived when their row was gone already: an orphan, which an audit finds."""
        self.deleted_elsewhere: set[str] = set()
        """Attempts whose objects, or uploads, were to be deleted where a bucket's name led in that moment: orphans."""
        self.never_begun: set[str] = set()
        """Attempts whose beginning a power failure took back."""
        self.foreign_history = False
        """The database was restored: what it forgot is nobody's fault."""
        self._changes = world.db.changes
        self._seen = world.db.version(*READ_TABLES)
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._local_bytes: dict[Process, dict[TopicIdPartition, int]] = {}
        self._planning_since: dict[Process, int] = {}
        self.must_ask: dict[str, str] = {}
        """Runs that nothing but an approval may release, and why."""
        self._plans: dict[str, Sequence[Any]] = {}
        """Of runs that expire, as they were stored."""
        self.log_starts_decided: dict[tuple[str, int], set[int]] = defaultdict(set)

    def broken(self, invariant: str, detail: str, cause: BaseException | None = None) -> None:
        """Only the first one counts."""
        if self.violation is None:
            self.violation = Violation(invariant, detail, self.world.scheduler.steps, self.world.scheduler.now_ms)
            self.cause = cause

    # The world.

    def after_event(self) -> None:
        self._record_logs()
        self.rows_changed(None, "an event")

    def log_of(self, partition: TopicIdPartition) -> PartitionLog | None:
        """Also of a topic that was deleted since."""
        self._record_logs()
        return self._logs.get(partition)

    def partitions(self) -> list[TopicIdPartition]:
        """All that ever were."""
        self._record_logs()
        return list(self._logs)

    def _record_logs(self) -> None:
        if len(self.world.cluster.logs) != len(self._logs) or self.world.cluster.removed:
            self._logs.update(self.world.cluster.logs)

    def restored(self) -> None:
        """What the backup knows is what goes on; objects that it forgot, or that it still names, may be anything."""
        self.foreign_history = True
        self.leases.forget()
        for row in (*self.rows.known.values(),):
            self.may_leave_objects.add(row.segment_id)
        self.rows.accept()
        self.only_copy.history_changed()
        for row in self.rows.known.values():
            self.may_leave_objects.add(row.segment_id)
        self.ever_finished = {}
        self.histories.check()
        for topic_id, number, highest in self.world.db.rows(
            "SELECT topic_id, partition, highest_offset FROM size_counters WHERE leader_epoch = -1 AND state = 1"
        ):
            newest = self.histories.newest((topic_id, number))[0]
            row = Row("restored", topic_id, number, "", 0, highest, 0, "", FINISHED, 0, 0, history=newest)
            self.ever_finished[topic_id, number] = {row.segment_id: row}
        self._changes = self.world.db.changes
        self._seen = self.world.db.version(*READ_TABLES)

    def power_failed(self) -> None:
        """Attempts that had only just begun may be forgotten; nothing else of what is watched is."""
        before, log_starts = self.rows.known, self.rows.log_starts
        self.rows.accept()
        for row in before.values():
            now = self.rows.known.get(row.segment_id)
            if now is None and row.state == STARTED:
                self.never_begun.add(row.segment_id)
            elif now != row:
                self.broken("a power failure removes no commit that waited for the disk", f"{row} is {now or 'gone'}")
        if self.rows.log_starts != log_starts:
            self.broken("a power failure removes no commit that waited for the disk", f"log starts were {log_starts}")
        self._changes = self.world.db.changes
        self._seen = self.world.db.version(*READ_TABLES)

    # Calls.

    def before_call(self, process: Process, label: str) -> None:
        self.leases.before_call(process, label)

    def after_call(
        self, process: Process, label: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if label == "source.open_segment":
            self.sending.opened(process, result)
            self.replaced_records.opened(process, result)
        elif label == "opened.recheck":
            self.sending.source_checked(process)
        elif label == "registry.owner":
            self.sending.owner_seen(process, args[0], result)
        elif label == "source.scan":
            self._scanned(process)
        elif label == "work.paused_topics":
            self.sending.pause_seen(process, result)
            self.only_copy.pause_seen(process, result)
        elif label == "deletions.claim" and result is not None:
            self.only_copy.takes(process, result.fence.topic_id_partition)
            self._local_bytes[process] = {one: self.bytes_local_now(one) for one in self.partitions()}
        elif label == "deletions.save_plan":
            self._planned_deletions(process, *args[:2])
        elif label == "deletions.totals":
            self._check_limits(args[0])
        elif label == "metadata.skip_offsets":
            self._skipped(args[0], args[1])
        elif label == "selected.segments_with_ids":
            self.publishing.looked(process, args[0], result)
        elif label == "metadata.add_segment":
            self.handing_over.copy_began(args[0].topic_id_partition, process)
        elif label == "publications.intend":
            self.publishing.intended(process, args[0].topic_id_partition, args[2].state)
            self.handing_over.intended(process, args[0].topic_id_partition)
        wrote = self.world.db.changes != self._changes
        self.leases.after_call(process, label, args, kwargs, result, wrote=wrote)
        self.rows_changed(process, label)

    def rows_changed(self, process: Process | None, label: str) -> None:
        """Look at the rows if any was written."""
        self._changes = self.world.db.changes
        version = self.world.db.version(*READ_TABLES)
        if version != self._seen:
            self._seen = version
            self.rows.check(process, label)
            self.divergences.check()
            self.histories.check()

    def _skipped(self, partition: TopicIdPartition, offsets: Any) -> None:
        """Or a log cleaner took some of, or some of a segment that they are in: none is copied in part, so that its
        last offsets may wait alone, where those before are remote already or below the log start. By the plan that
        somebody decided about another replica may have led."""
        log = self.world.cluster.logs.get(partition)
        if log is None or log.leading is None or log.unclean:
            return
        files = [file for replica in log.replicas.values() for file in replica.files if file.is_compacted]
        is_within = any(file.base_offset <= offsets.last and offsets.first < file.end for file in files)
        is_compacted = is_within or not log.cleaned_offsets.isdisjoint(range(offsets.first, offsets.last + 1))
        if log.leading.log_start <= offsets.last and not is_compacted:
            self.broken(
                "only what the source lost is skipped", f"{partition} {offsets}: it starts at {log.leading.log_start}"
            )

    # Expiration.

    def expiration_planning(self, process: Process) -> None:
        self._planning_since[process] = self.world.scheduler.now_ms
        self._local_bytes[process] = {one: self.bytes_local_now(one) for one in self.partitions()}

    def _scanned(self, process: Process) -> None:
        """What it plans from."""
        seen = self._local_bytes.get(process)
        if seen is not None:
            for partition in self.partitions():
                seen[partition] = max(seen.get(partition, 0), self.bytes_local_now(partition))

    def bytes_local(self, process: Process, partition: TopicIdPartition) -> int:
        """Not remote, when the plan was begun, when it scanned or now: the largest one."""
        return max(self._local_bytes.get(process, {}).get(partition, 0), self.bytes_local_now(partition))

    def bytes_local_of_any_plan(self, partition: TopicIdPartition) -> int:
        """The largest that any process saw, or there are now."""
        seen = (one.get(partition, 0) for one in self._local_bytes.values())
        return max(self.bytes_local_now(partition), *seen, 0)

    def bytes_local_now(self, partition: TopicIdPartition) -> int:
        """Of records that are not remote and that somebody can read: those below a log start are gone."""
        log = self.log_of(partition)
        if log is None or log.leading is None:
            return 0
        place = (str(partition.topic_id), partition.partition)
        first = max(self.highest_copied(partition) + 1, log.leading.log_start, self.rows.log_starts.get(place, 0))
        return size_of(partition, [record for record in log.leading.records() if record[1] >= first])

    def highest_copied(self, partition: TopicIdPartition) -> int:
        """-1: nothing was ever FINISHED."""
        place = (str(partition.topic_id), partition.partition)
        highest = self.histories.highest(place)
        return -1 if highest is None else highest

    def bytes_there(self, partition: TopicIdPartition) -> int:
        """All that counts towards a retention by size."""
        return self.bytes_local_now(partition) + sum(
            row.size_bytes for row in self.live_rows(partition) if row.state == FINISHED
        )

    def truncation_decided(self, planned: Any) -> None:
        partition = planned.topic_id_partition
        self.log_starts_decided[str(partition.topic_id), partition.partition].add(planned.log_start_offset)
        self.only_copy.truncated(partition, planned.log_start_offset)

    def _planned_deletions(self, process: Process, run_id: str, expirations: Sequence[Any]) -> None:
        since_ms = self._planning_since.get(process, self.world.scheduler.now_ms)
        for planned in expirations:
            partition = planned.topic_id_partition
            self.log_starts_decided[str(partition.topic_id), partition.partition].add(planned.log_start_offset)
            self._require_true_removals(planned)
            ours = self.rows.log_starts.get((str(partition.topic_id), partition.partition), 0)
            if planned.log_start_before > ours and not self.foreign_history:
                self.broken(
                    "a plan begins at the platform's log start",
                    f"{partition}: {planned.log_start_before}, ours is {ours}",
                )
            require_justified(self, process, planned, since_ms)
        self._plans[run_id] = expirations
        self._check_limits(run_id)

    def _check_limits(self, run_id: str) -> None:
        """`must_ask` by the rows as they are now."""
        self.must_ask.pop(run_id, None)
        reason = why_to_ask(self, self._plans.get(run_id, ()))
        if reason:
            self.must_ask[run_id] = reason

    def _require_true_removals(self, planned: Any) -> None:
        partition = planned.topic_id_partition
        for one in planned.deletions:
            if one.reason == DeletionReason.TOPIC_DELETED and partition.topic_id not in self.world.cluster.removed:
                self.broken("a topic counts as deleted only by positive evidence", f"{partition} is there")

    def live_rows(self, partition: TopicIdPartition) -> list[Row]:
        """Neither tombstones nor of another partition."""
        place = (str(partition.topic_id), partition.partition)
        return [row for row in self.rows.known.values() if row.place == place and row.state <= DELETING]
