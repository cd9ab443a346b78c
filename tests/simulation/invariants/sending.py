"""Bytes and objects on their way: what may be sent, what a FINISHED segment rests on, what may be deleted."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from include.tiering.errors import TieringError
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from tests.simulation.invariants.rows import DELETING, FINISHED, GONE, STARTED, Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.object_store import Upload

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_HOLD_MS = 24 * 60 * 60 * 1000
_OWNER_OF_EXPIRING = """
    SELECT t.owner FROM topics t JOIN leases l ON l.topic_id = t.topic_id
    WHERE t.name = ? AND l.role = 'expire' ORDER BY l.claimed_at_ms DESC LIMIT 1
"""


class Sending:
    """What the store of one world was sent and asked to delete."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._spoiled: dict[str, tuple[Process, str, Any]] = {}
        """By attempt: who sent it, what of its source had changed by then, and the source."""
        self._foreign_since_ms: int | None = None
        self._marker_read_ms: dict[Process, int] = {}
        self._sees_pause: dict[Process, frozenset[str]] = {}
        self._granted: Counter[Process] = Counter()
        self._sent: Counter[Process] = Counter()
        self._owner_at_request: dict[Process, str] = {}
        self._steps = 0
        self._saw_ours: dict[tuple[Process, str], int] = {}
        """At which step a process asked last whose the topic is, and was told: the platform's."""
        self._completed: dict[str, int] = {}
        """At which step the last object of an attempt was written."""
        self._superseded_at_ms: dict[str, int] = {}
        self.hidden_uploads: set[str] = set()
        """Keys of uploads that a list did not show: they may stay, until an audit finds them."""

    def pause_seen(self, process: Process, paused: frozenset[str]) -> None:
        self._sees_pause[process] = paused

    def owner_seen(self, process: Process, topic_id: Uuid, owner: TopicOwner) -> None:
        if owner is TopicOwner.PLATFORM:
            self._steps += 1
            self._saw_ours[process, str(topic_id)] = self._steps

    def opened(self, process: Process, opened: Any) -> None:
        replica = opened._replica.replica_id
        cluster_metadata = self._world.cluster_metadata.visible()[0].get(replica.topic_id_partition.topic_id)
        leader = (
            None
            if cluster_metadata is None
            else cluster_metadata.partitions[replica.topic_id_partition.partition].leader
        )
        if leader is not None and leader >= 0 and leader != replica.broker_id and opened.segment.eligible:
            self._watch.broken("only the leader's replica is read", f"{process.name} opened {replica}, {leader} leads")
        # A batch that opens the segment of a copy that it left compares the bytes anew, as any other batch would.
        place = (replica.topic_id_partition, opened.segment.base_offset)
        for segment_id, (sender, _, before) in list(self._spoiled.items()):
            if sender is process and place == (before.partition, before.segment.base_offset):
                del self._spoiled[segment_id]

    def upload_begun(self, key: str) -> None:
        """By somebody who slept through its lease, what it begins is nobody's."""
        self._note_late(key.rpartition("/")[2][21:43])

    def _note_late(self, segment_id: str) -> None:
        row = self._watch.rows.known.get(segment_id)
        if row is None or row.state in (DELETING, GONE):
            self._watch.wrote_late.add(segment_id)

    def object_created(self, key: str, content: bytes, process: Process | None) -> None:
        name = key.rpartition("/")[2]
        segment_id, start = name[21:43], int(name[:20])
        self._note_late(segment_id)
        row = self._watch.rows.known.get(segment_id)
        if process is None or not name.endswith(".rsm-manifest"):
            return
        self._steps += 1
        self._completed[segment_id] = self._steps
        if row is None or row.state != STARTED:
            return
        opened = self._world.opened.get((process, row.topic_id_partition, start))
        reason = None if opened is None else self._changed_since_opened(opened)
        if reason:
            self._spoiled[segment_id] = (process, reason, opened)

    def source_checked(self, process: Process) -> None:
        """What had changed may be as it was when the segment was opened, file and all: a topic is compacted for a
        while, and its log cleaner never came to the segment. Who looks then has looked."""
        for segment_id, (sender, _, opened) in list(self._spoiled.items()):
            if sender is process and self._changed_since_opened(opened) is None:
                del self._spoiled[segment_id]

    def finished(self, row: Row, process: Any) -> None:
        """Whatever had changed when the last object was written must have been seen by who wrote it.

        Another one finishes what was left if the source has the same bytes, or nothing any more: see `rows`.
        """
        sender, reason, _ = self._spoiled.get(row.segment_id, (None, None, None))
        if reason is not None and sender is process:
            self._watch.broken("the source is checked after sending", f"{row} became FINISHED although {reason}")
        if self._saw_ours.get((process, row.topic_id), 0) <= self._completed.get(row.segment_id, 0):
            self._watch.broken(
                "the owner is checked after sending", f"{row} became FINISHED, {process.name} did not ask"
            )

    def deletion_began(self, row: Row, process: Process | None) -> None:
        """Of what was FINISHED."""
        owner = self._owner_at_request.get(process) if process is not None else None
        if owner is not None and owner != TopicOwner.PLATFORM and self._not_ours(row):
            self._watch.broken("nothing of another owner is deleted", f"{row}: the owner was {owner} when it began")
        if process is not None and process not in self._owner_at_request:
            self._watch.broken("deletions keep to their rate", f"{row}: {process.name} asked for no request before")

    def superseded(self, row: Row) -> None:
        self._superseded_at_ms[row.segment_id] = self._world.scheduler.now_ms

    def bucket_changed_hands(self, *, is_ours: bool) -> None:
        self._foreign_since_ms = None if is_ours else self._world.scheduler.now_ms

    def object_goes(self, key: str, process: Process) -> None:
        """It is there still."""
        since_ms = self._foreign_since_ms
        if since_ms is not None and self._marker_read_ms.get(process, 0) >= since_ms:
            self._watch.broken("nothing is deleted in a foreign bucket", f"{process.name}: {key}")
        if since_ms is not None and process not in self._marker_read_ms:
            self._watch.broken("nothing is deleted in a foreign bucket", f"{process.name} never asked: {key}")
        if key in self._world.store.brokers_own and not self._watch.audits.cannot_know(key, process):
            self._watch.broken("objects that a broker wrote are not touched", f"{key} was deleted by {process.name}")
        name = key.rpartition("/")[2]
        segment_id = name[21:43]
        row = self._watch.rows.known.get(segment_id)
        held_since_ms = self._superseded_at_ms.get(segment_id)
        if held_since_ms is not None and self._world.scheduler.now_ms < held_since_ms + _HOLD_MS:
            self._watch.broken("superseded segments are held", f"{name} of {row} goes already")
        if row is not None and row.state in (STARTED, FINISHED) and segment_id not in self._watch.may_leave_objects:
            self._watch.broken("no object of a live row is deleted", f"{name} of {row}")
        if process.name.startswith("remover"):
            self._watch.audits.removes(key, process)
        elif row is None and segment_id not in self._watch.never_begun and not self._watch.foreign_history:
            self._watch.broken("no object of a live row is deleted", f"{key}: no row was ever begun for it")

    def upload_aborted(self, upload: Upload) -> None:
        if upload.process is None:
            self._watch.broken("objects that a broker wrote are not touched", f"its upload of {upload.key} was aborted")

    def marker_read(self, process: Process) -> None:
        self._marker_read_ms[process] = self._world.scheduler.now_ms

    def bytes_granted(self, process: Process, topic: str, size_bytes: int) -> None:
        self._granted[process] += size_bytes
        if size_bytes and not self._watch.leases.is_valid(process):
            self._watch.broken(
                "no byte is sent under an expired lease", f"{process.name} got {size_bytes} bytes of {topic}"
            )
        paused = self._sees_pause.get(process, frozenset())
        if size_bytes and ("*" in paused or topic in paused):
            self._watch.broken(
                "a pause that was seen stops the sending", f"{process.name} got {size_bytes} bytes of {topic}"
            )

    def bytes_sent(self, process: Process, size_bytes: int) -> None:
        self._sent[process] += size_bytes
        if self._sent[process] > self._granted[process]:
            self._watch.broken("no byte is sent that was not granted", f"{process.name}: {self._sent[process]} bytes")

    def has_asked_for_requests(self, process: Process) -> bool:
        return process in self._owner_at_request

    def request_granted(self, process: Process, topic: str) -> None:
        self._watch.audits.asks(process)
        found = self._world.db.rows(_OWNER_OF_EXPIRING, topic)
        self._owner_at_request[process] = found[0][0] if found else TopicOwner.PLATFORM

    def _changed_since_opened(self, opened: Any) -> str | None:
        if self._world.cluster_metadata.is_away:
            return None
        try:
            opened.recheck()
        except TieringError as error:
            return str(error)
        return None

    def _not_ours(self, row: Row) -> str | None:
        found = self._world.db.rows("SELECT owner FROM topics WHERE topic_id = ?", row.topic_id)
        owner = found[0][0] if found else "nobody"
        return None if owner == TopicOwner.PLATFORM else f"the owner was {owner}"
