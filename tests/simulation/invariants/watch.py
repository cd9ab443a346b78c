"""What is watched while a schedule runs. The first thing that breaks ends it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from include.tiering.errors import TieringError
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.retention import DeletionReason
from include.tiering.model.topic_owner import TopicOwner
from include.tiering.remote_metadata.contract import Fence, LeaseRole
from include.tiering.remote_storage.marker import MARKER_KEY, marker_to_bytes
from tests.simulation.invariants.retention import require_justified
from tests.simulation.invariants.rows import DELETING, FINISHED, GONE, STARTED, Row, Rows
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.deployment import MARKER
from tests.simulation.world.records import size_of

if TYPE_CHECKING:
    from tests.simulation.world.world import World

_LEASES = "SELECT topic_id, partition, role, token, expires_at_ms, run_id, batch_id FROM leases"
_RELEASE = """
    SELECT r.needs_approval, a.plan_hash = r.plan_hash
    FROM runs r LEFT JOIN approvals a ON a.run_id = r.run_id WHERE r.run_id = ?
"""
_OWNER_OF_EXPIRING = """
    SELECT t.owner FROM topics t JOIN leases l ON l.topic_id = t.topic_id
    WHERE t.name = ? AND l.role = 'expire' ORDER BY l.claimed_at_ms DESC LIMIT 1
"""
_LEASING = frozenset({"work.claim", "work.renew", "work.release", "deletions.claim"})
_CHANGING = frozenset({"metadata.add_segment", "metadata.update_segment", "metadata.advance_deletion"})


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
        self.ever_finished: dict[tuple[str, int], dict[str, Row]] = {}
        self.were_finished: set[str] = set()
        """Ids of attempts that were FINISHED at some time."""
        self.may_leave_objects: set[str] = set()
        self.wrote_late: set[str] = set()
        """Attempts of which a write arrived when their row was gone already: an orphan, which an audit finds."""
        self.foreign_history = False
        """The database was restored: what it forgot is nobody's fault."""
        self._changes = world.db.changes
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._newest: dict[tuple[TopicIdPartition, LeaseRole], tuple[int, Process]] = {}
        self._leases_before: dict[tuple[TopicIdPartition, LeaseRole], tuple[int, int, str, str]] = {}
        self._spoiled: dict[str, str] = {}
        self._foreign_since_ms: int | None = None
        self._marker_read_ms: dict[Process, int] = {}
        self._saw_no_holder: set[tuple[Process, TopicIdPartition]] = set()
        self._local_bytes: dict[Process, dict[TopicIdPartition, int]] = {}
        self._asked_at: dict[Process, float] = {}
        self._valid_until: dict[Process, float] = {}
        self._sees_pause: dict[Process, frozenset[str]] = {}
        self._granted: Counter[Process] = Counter()
        self._sent: Counter[Process] = Counter()
        self._requests: Counter[Process] = Counter()
        self._planning_since: dict[Process, int] = {}
        self._owner_at_request: dict[Process, str] = {}
        self._log_starts_decided: dict[tuple[str, int], set[int]] = defaultdict(set)

    def broken(self, invariant: str, detail: str, cause: BaseException | None = None) -> None:
        """Only the first one counts."""
        if self.violation is None:
            self.violation = Violation(invariant, detail, self.world.scheduler.steps, self.world.scheduler.now_ms)
            self.cause = cause

    # The world.

    def after_event(self) -> None:
        self._remember_logs()
        self.rows_changed(None, "an event")

    def log_of(self, partition: TopicIdPartition) -> PartitionLog | None:
        """Also of a topic that was deleted since."""
        self._remember_logs()
        return self._logs.get(partition)

    def partitions(self) -> list[TopicIdPartition]:
        """All that ever were."""
        self._remember_logs()
        return list(self._logs)

    def _remember_logs(self) -> None:
        if len(self.world.cluster.logs) != len(self._logs) or self.world.cluster.removed:
            self._logs.update(self.world.cluster.logs)

    def restored(self) -> None:
        """What the backup knows is what goes on; objects that it forgot, or that it still names, may be anything."""
        self.foreign_history = True
        for row in (*self.rows.known.values(),):
            self.may_leave_objects.add(row.segment_id)
        self.rows.accept()
        for row in self.rows.known.values():
            self.may_leave_objects.add(row.segment_id)
        self.ever_finished = {}
        for topic_id, number, highest in self.world.db.rows(
            "SELECT topic_id, partition, highest_offset FROM size_counters WHERE leader_epoch = -1 AND state = 1"
        ):
            row = Row("restored", topic_id, number, "", 0, highest, 0, "", FINISHED, 0, 0)
            self.ever_finished[topic_id, number] = {row.segment_id: row}
        self._changes = self.world.db.changes

    # Calls.

    def before_call(self, process: Process, label: str, args: Sequence[Any]) -> None:
        """A lease is valid from before the request that got it, by the clock of who asked."""
        if label in _LEASING:
            self._asked_at[process] = process.monotonic()

    def after_call(
        self, process: Process, label: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if label == "source.open_segment":
            self._opened(process, result)
        if label in _LEASING:
            lease_ms: int | None = kwargs.get("lease_ms")
            if lease_ms is not None and result is not None:
                self._valid_until[process] = self._asked_at[process] + lease_ms / 1000
            if result is not None and label.endswith(".claim"):
                self._tell_lease(process, result.fence)
                self._claimed(process, result.fence)
            if label == "deletions.claim" and result is not None:
                self._require_released(result.run_id)
            self._leases_before = self._leases()
        elif label == "work.paused_topics":
            self._sees_pause[process] = result
        elif label == "deletions.save_plan":
            self._planned_deletions(process, args[1])
        elif label == "metadata.skip_offsets":
            self._skipped(args[0], args[1])
        elif label == "work.holder" and result is None:
            self._saw_no_holder.add((process, args[0]))
        fence = kwargs.get("fence")
        if fence is not None and label in _CHANGING and self.world.db.changes != self._changes:
            self._fenced_change(process, fence, label)
        self.rows_changed(process, label)

    def rows_changed(self, process: Process | None, label: str) -> None:
        """Look at the rows if anything was written."""
        if self.world.db.changes == self._changes:
            return
        self._changes = self.world.db.changes
        self.rows.look(process, label)

    def _leases(self) -> dict[tuple[TopicIdPartition, LeaseRole], tuple[int, int, str, str]]:
        found = {}
        for topic_id, number, role, token, expires, run_id, batch_id in self.world.db.rows(_LEASES):
            found[TopicIdPartition(Uuid.parse(topic_id), number, "x"), LeaseRole(role)] = (
                token,
                expires,
                run_id,
                batch_id,
            )
        return found

    def _tell_lease(self, process: Process, fence: Fence) -> None:
        partition = fence.topic_id_partition
        self.world.note(process.name, "gets a lease", f"{partition} to {fence.role}, token {fence.token}", "")

    def _claimed(self, process: Process, fence: Fence) -> None:
        key = (fence.topic_id_partition, fence.role)
        before = self._leases_before.get(key)
        row = self._leases()[key]
        if before is not None and not self.foreign_history:
            _, expires, run_id, batch_id = before
            is_own = (run_id, batch_id) == row[2:]
            if expires > self.world.scheduler.now_ms and not is_own:
                self.broken("a live lease is not given away", f"{fence.topic_id_partition} to {process.name}")
        newest = self._newest.get(key)
        if newest is not None and fence.token <= newest[0]:
            self.broken("tokens ascend", f"{fence.topic_id_partition} {fence.role}: {fence.token} after {newest[0]}")
        self._newest[key] = (fence.token, process)

    def _require_released(self, run_id: str) -> None:
        needs_approval, is_approved = self.world.db.rows(_RELEASE, run_id)[0]
        if needs_approval != 0 and not is_approved:
            self.broken("nothing is deleted before the brake let it pass", f"run {run_id} was claimed")

    def _fenced_change(self, process: Process, fence: Fence, label: str) -> None:
        newest = self._newest.get((fence.topic_id_partition, fence.role))
        if newest is None or newest != (fence.token, process):
            holder = "nobody" if newest is None else f"{newest[1].name} with token {newest[0]}"
            self.broken(
                "never two owners acting",
                f"{process.name} changed {fence.topic_id_partition} by {label} with token {fence.token};"
                f" the newest holder is {holder}",
            )

    # Copies.

    def _opened(self, process: Process, opened: Any) -> None:
        replica = opened._replica.replica_id
        facts = self.world.facts.visible()[0].get(replica.topic_id_partition.topic_id)
        leader = None if facts is None else facts.partitions[replica.topic_id_partition.partition].leader
        if leader is not None and leader >= 0 and leader != replica.broker_id and opened.segment.eligible:
            self.broken("only the leader's replica is read", f"{process.name} opened {replica}, {leader} leads")

    def object_created(self, key: str, content: bytes, process: Process | None) -> None:
        name = key.rpartition("/")[2]
        segment_id, start = name[21:43], int(name[:20])
        row = self.rows.known.get(segment_id)
        if row is None or row.state in (DELETING, GONE):
            self.wrote_late.add(segment_id)
        if process is None or not name.endswith(".rsm-manifest"):
            return
        if row is None or row.state != STARTED:
            return
        opened = self.world.opened.get((process, row.topic_id_partition, start))
        if opened is None:
            return
        reason = self._changed_since_opened(opened) or self._not_ours(row)
        if reason:
            self._spoiled[segment_id] = reason

    def finished(self, row: Row, process: Any) -> None:
        """Whatever had changed when the last object was written must have been seen."""
        self.were_finished.add(row.segment_id)
        reason = self._spoiled.get(row.segment_id)
        if reason is not None and (not reason.startswith("the owner") or self._not_ours(row)):
            self.broken("the source is looked at after sending", f"{row} became FINISHED although {reason}")

    def deletion_began(self, row: Row, process: Process | None) -> None:
        """Of what was FINISHED."""
        owner = self._owner_at_request.get(process) if process is not None else None
        if owner is not None and owner != TopicOwner.PLATFORM:
            self.broken("nothing of another owner is deleted", f"{row}: the owner was {owner} when it began")
        if process is not None and process not in self._owner_at_request:
            self.broken("deletions keep to their rate", f"{row}: {process.name} asked for no request before")

    def bucket_changed_hands(self) -> None:
        objects = self.world.store.objects
        self._foreign_since_ms = None if objects[MARKER_KEY] == marker_to_bytes(MARKER) else self.world.scheduler.now_ms

    def _skipped(self, partition: TopicIdPartition, offsets: Any) -> None:
        log = self.world.cluster.logs.get(partition)
        if log is not None and log.leading is not None and log.leading.log_start <= offsets.last and not log.unclean:
            self.broken(
                "only what the source lost is skipped", f"{partition} {offsets}: it starts at {log.leading.log_start}"
            )

    def abandoned(self, row: Row, process: Process | None) -> None:
        """A copy that was not FINISHED begins to be deleted. Its own holder may do that, others once it is gone."""
        partition = row.topic_id_partition
        lease = self._leases().get((partition, LeaseRole.COPY))
        newest = self._newest.get((partition, LeaseRole.COPY))
        if process is None or lease is None or newest is None or newest[1] is process:
            return
        is_live = lease[1] > self.world.scheduler.now_ms and lease[0] == row.fencing_token
        if is_live and (process, partition) not in self._saw_no_holder:
            self.broken("what somebody works on is not abandoned", f"{row} by {process.name}, {newest[1].name} copies")

    def object_deleted(self, key: str, process: Process) -> None:
        since_ms = self._foreign_since_ms
        if since_ms is not None and self._marker_read_ms.get(process, 0) >= since_ms:
            self.broken("nothing is deleted in a bucket that is not ours", f"{process.name}: {key}")
        if since_ms is not None and process not in self._marker_read_ms:
            self.broken("nothing is deleted in a bucket that is not ours", f"{process.name} never asked: {key}")
        name = key.rpartition("/")[2]
        segment_id = name[21:43]
        row = self.rows.known.get(segment_id)
        if row is not None and row.state in (STARTED, FINISHED) and segment_id not in self.may_leave_objects:
            self.broken("no object of a live row is deleted", f"{name} of {row}")
        if row is None and not self.foreign_history:
            self.broken("no object of a live row is deleted", f"{key}: no row was ever begun for it")

    def _changed_since_opened(self, opened: Any) -> str | None:
        try:
            opened.recheck()
        except TieringError as error:
            return str(error)
        return None

    def _not_ours(self, row: Row) -> str | None:
        found = self.world.db.rows("SELECT owner FROM topics WHERE topic_id = ?", row.topic_id)
        owner = found[0][0] if found else "nobody"
        return None if owner == TopicOwner.PLATFORM else f"the owner was {owner}"

    def marker_read(self, process: Process) -> None:
        self._marker_read_ms[process] = self.world.scheduler.now_ms

    # Quotas and pauses.

    def bytes_granted(self, process: Process, topic: str, size_bytes: int) -> None:
        self._granted[process] += size_bytes
        if size_bytes and process.monotonic() > self._valid_until.get(process, 0.0):
            self.broken(
                "no byte is sent under a lease that ran out", f"{process.name} got {size_bytes} bytes of {topic}"
            )
        paused = self._sees_pause.get(process, frozenset())
        if size_bytes and ("*" in paused or topic in paused):
            self.broken("a pause that was seen stops the sending", f"{process.name} got {size_bytes} bytes of {topic}")

    def bytes_sent(self, process: Process, size_bytes: int) -> None:
        self._sent[process] += size_bytes
        if self._sent[process] > self._granted[process]:
            self.broken("no byte is sent that was not granted", f"{process.name}: {self._sent[process]} bytes")

    def request_granted(self, process: Process, topic: str) -> None:
        self._requests[process] += 1
        found = self.world.db.rows(_OWNER_OF_EXPIRING, topic)
        self._owner_at_request[process] = found[0][0] if found else TopicOwner.PLATFORM

    # Expiration.

    def expiration_planning(self, process: Process) -> None:
        self._planning_since[process] = self.world.scheduler.now_ms
        self._local_bytes[process] = {one: self._bytes_local(one) for one in self.partitions()}

    def bytes_local(self, process: Process, partition: TopicIdPartition) -> int:
        """Not remote, when the plan was begun or now: the larger one."""
        return max(self._local_bytes.get(process, {}).get(partition, 0), self._bytes_local(partition))

    def _bytes_local(self, partition: TopicIdPartition) -> int:
        log = self.log_of(partition)
        if log is None or log.leading is None:
            return 0
        place = (str(partition.topic_id), partition.partition)
        highest = max((row.end_offset for row in self.ever_finished.get(place, {}).values()), default=-1)
        return size_of(partition, [record for record in log.leading.records() if record[1] > highest])

    def truncation_decided(self, planned: Any) -> None:
        partition = planned.topic_id_partition
        self._log_starts_decided[str(partition.topic_id), partition.partition].add(planned.log_start_offset)

    def _planned_deletions(self, process: Process, expirations: Sequence[Any]) -> None:
        since_ms = self._planning_since.get(process, self.world.scheduler.now_ms)
        for planned in expirations:
            partition = planned.topic_id_partition
            self._log_starts_decided[str(partition.topic_id), partition.partition].add(planned.log_start_offset)
            self._require_true_removals(planned)
            ours = self.rows.log_starts.get((str(partition.topic_id), partition.partition), 0)
            if planned.log_start_before > ours:
                self.broken(
                    "a plan begins at our log start", f"{partition}: {planned.log_start_before}, ours is {ours}"
                )
            require_justified(self, process, planned, since_ms)

    def _require_true_removals(self, planned: Any) -> None:
        partition = planned.topic_id_partition
        for one in planned.deletions:
            if one.reason == DeletionReason.TOPIC_DELETED and partition.topic_id not in self.world.cluster.removed:
                self.broken("a topic's deletion is believed from a positive answer alone", f"{partition} is there")

    def live_rows(self, partition: TopicIdPartition) -> list[Row]:
        """Neither tombstones nor of another partition."""
        place = (str(partition.topic_id), partition.partition)
        return [row for row in self.rows.known.values() if row.place == place and row.state <= DELETING]
