"""What comes into `__remote_log_metadata`: after every record a broker could be switched on with what is there."""

from typing import TYPE_CHECKING, Any, Final

from include.tiering.errors import FormatError
from include.tiering.formats.remote_log_metadata_records import SegmentRecord
from include.tiering.kafka.metadata_topic.contract import MetadataTopicRecord
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from tests.simulation.invariants.rows import DELETING as ROW_DELETING
from tests.simulation.invariants.rows import Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.remote_cache import (
    DELETING,
    FINISHED,
    STARTED,
    Known,
    Place,
    RemoteCache,
    StopsBrokersError,
    covered_to,
    place_of,
    said_by,
)

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_LAST: Final = """
    SELECT value FROM published_records WHERE topic_id = ? AND partition = ? ORDER BY sequence DESC LIMIT 1
"""
_DELETION: Final = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
_OWNER: Final = "SELECT owner FROM topics WHERE topic_id = ?"
_PENDING: Final = """
    SELECT 1 FROM published_records
    WHERE topic_id = ? AND partition = ? AND segment_id = ? AND metadata_offset IS NULL
"""
_SUFFIXES: Final = ("log", "indexes", "rsm-manifest")


class Publishing:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._values: set[bytes] = set()
        self._foreign: dict[Place, int] = {}
        """The first offset at which a broker wrote about a partition."""
        self._held_at_intent: dict[Place, Process | None] = {}
        self._withdrawn: set[str] = set()
        """Who wrote the last record down, if it had the lease then."""
        self._read_to: dict[tuple[Process, int], int] = {}
        self._passed: dict[tuple[Process, Place], frozenset[str]] = {}
        """What had passed when a process looked last."""
        self._failed: dict[tuple[Process, Place], frozenset[str]] = {}
        self._read_at_intent: dict[tuple[Process, Place], int] = {}

    # What a publisher sees.

    def looked(self, process: Process, partition: TopicIdPartition, rows: Any) -> None:
        """A publisher reads the segments with a record and those that reach into the broker's log."""
        place = process, _place(partition)
        for verdict, found in (("passed", self._passed), ("failed", self._failed)):
            ids = (row.metadata.remote_log_segment_id.id for row in rows if str(row.verdict) == verdict)
            found[place] = frozenset(map(str, ids))

    def read(self, process: Process, metadata_partition: int, end_offset: int) -> None:
        before = self._read_to.get((process, metadata_partition), 0)
        self._read_to[process, metadata_partition] = max(before, end_offset)

    def intended(self, process: Process, partition: TopicIdPartition, state: RemoteLogSegmentState) -> None:
        """A record was written down. Of a topic that is archived again, deletions are published."""
        owner = self._world.db.rows(_OWNER, str(partition.topic_id))
        owners = ("handing-over", "platform") if state in _DELETION else ("handing-over",)
        if not owner or owner[0][0] not in owners:
            self._watch.broken("only topics that are being handed over are published", f"{partition}: {owner}")
        newest = self._watch.leases.newest(partition, LeaseRole.PUBLISH)
        self._held_at_intent[_place(partition)] = process if newest is process else None

    def have_others_written(self, topic_id: str) -> bool:
        """About some partition of the topic."""
        return any(place[0] == topic_id for place in self._foreign)

    # What comes.

    def appended(self, record: MetadataTopicRecord, process: Process | None, *, is_late: bool) -> None:
        """`process` None: a broker wrote it."""
        try:
            said = said_by(record.value)
        except FormatError as error:
            self._watch.broken("no record stops a broker", f"offset {record.offset}: {error}")
            return
        place = place_of(said)
        cache: RemoteCache = self._world.topic.caches[place]
        who = "a broker" if process is None else "us"
        self._world.coverage[f"record: {said.state.name} by {who}"] += 1
        if record.value in self._values:
            self._world.coverage["record: once more"] += 1
            self._came_again(record, said, place, cache)
            return
        self._values.add(record.value)
        if process is None:
            self._foreign.setdefault(place, record.offset)
        else:
            self._sent(record, said, place, cache, process)
            if not is_late:
                self._require_lease(said, place, process)
        try:
            is_taken = cache.take(said, is_brokers=process is None)
        except StopsBrokersError as error:
            self._watch.broken("no record stops a broker", str(error))
            return
        if not is_taken and process is not None:
            self._watch.broken("every record is a next state", f"{_described(said)} was dropped")

    def _came_again(self, record: MetadataTopicRecord, said: Any, place: Place, cache: RemoteCache) -> None:
        """A request that was believed to be lost."""
        before = cache.shown()
        cache.take(said, is_brokers=False)
        if cache.shown() != before:
            self._watch.broken(
                "what comes once more says nothing new", f"{place} {_described(said)} at {record.offset}"
            )

    def _sent(self, record: MetadataTopicRecord, said: Any, place: Place, cache: RemoteCache, process: Process) -> None:
        partition = TopicIdPartition(Uuid.parse(place[0]), place[1], said.segment_id.partition.topic)
        if not self._watch.foreign_history:
            last = self._world.db.rows(_LAST, *place)
            if not last or bytes(last[0][0]) != record.value:
                self._watch.broken("a record is written down before it is sent", f"{partition} {_described(said)}")
        foreign = self._foreign.get(place)
        if foreign is not None and foreign < self._read_to.get((process, record.partition), 0):
            self._watch.broken("what others wrote stops a publisher", f"{partition}: at offset {foreign}")
        if isinstance(said, SegmentRecord):
            self._begins(said, partition, cache, process)
        else:
            self._goes_on(said, partition, cache, process)

    def _require_lease(self, said: Any, place: Place, process: Process) -> None:
        partition = TopicIdPartition(Uuid.parse(place[0]), place[1], said.segment_id.partition.topic)
        newest = self._watch.leases.newest(partition, LeaseRole.PUBLISH)
        # Another start of the same batch may take the lease right before the record is sent. It reads first what was
        # written down, and the record is that one as long as it has written down none.
        if process not in (newest, self._held_at_intent.get(place)) and not self._watch.foreign_history:
            who = "nobody" if newest is None else newest.name
            self._watch.broken(
                "a partition has one publisher", f"{partition}: {process.name} sends, {who} has the lease"
            )

    def _begins(self, said: SegmentRecord, partition: TopicIdPartition, cache: RemoteCache, process: Process) -> None:
        segment_id, place = str(said.segment_id.id), _place(partition)
        if segment_id not in self._passed.get((process, place), frozenset()):
            self._watch.broken("published segments passed the quality check", f"{partition} {_described(said)}")
        live = [one for one in cache.live() if not one.is_brokers]
        second = [one for one in live if (one.start_offset, one.end_offset) == (said.start_offset, said.end_offset)]
        if second:
            self._watch.broken("a range has one id", f"{partition} {_described(said)} beside {second[0].segment_id}")
        if any(one.state == STARTED for one in live):
            self._watch.broken("one segment is published at a time", f"{partition} {_described(said)}")
        if live and said.end_offset <= max(one.end_offset for one in live):
            self._watch.broken("published segments ascend", f"{partition} {_described(said)}")
        log = self._watch.log_of(partition)
        log_start = 0 if log is None or log.leading is None else log.leading.log_start
        if said.start_offset > max(log_start, covered_to(log_start, live)):
            self._watch.broken(
                "published segments have no gap", f"{partition} {_described(said)}, log start {log_start}, live {live}"
            )

    def _goes_on(self, said: Any, partition: TopicIdPartition, cache: RemoteCache, process: Process) -> None:
        known, state = cache.known.get(str(said.segment_id.id)), int(said.state)
        if known is None:
            self._watch.broken("STARTED before FINISHED", f"{partition} {_described(said)}")
            return
        row = self._watch.rows.known.get(known.segment_id)
        is_ours = row is not None and not self._watch.foreign_history
        if state == FINISHED:
            if row is None or row.state >= ROW_DELETING:
                return  # it was superseded or is being deleted since it was looked at; its deletion follows
            if known.segment_id not in self._watch.rotten and not self._watch.rows.is_right(row):
                self._watch.broken("what is published has its exact bytes", f"{partition} {row}")
        elif state == DELETING:
            may_go = not is_ours or row is None or row.state >= ROW_DELETING
            failed = self._failed.get((process, _place(partition)), frozenset())
            is_failed = known.state == STARTED and known.segment_id in failed
            if not may_go and not is_failed and not self._is_withdrawn(known, partition):
                self._watch.broken("what is there is not deleted in the topic", f"{partition} {row}")
        elif known.state == DELETING and known.segment_id not in self._withdrawn:
            self._require_gone(known, partition)

    def _is_withdrawn(self, known: Known, partition: TopicIdPartition) -> bool:
        """Whether it is wholly below the log start: a topic that is archived again deletes it in the topic alone.

        Its owner may change between the plan and the record.
        """
        log = self._watch.log_of(partition)
        log_start = 0 if log is None else max((one.log_start for one in log.replicas.values()), default=0)
        if known.end_offset >= log_start:
            return False
        self._withdrawn.add(known.segment_id)
        return True

    def is_published(self, row: Row) -> bool:
        """Whether brokers may take over the segment: a record of it was written down, and none of its deletion came."""
        place = (row.topic_id, row.partition)
        is_known = row.segment_id in self._world.topic.caches[place].known
        return is_known or bool(self._world.db.rows(_PENDING, *place, row.segment_id))

    def _require_gone(self, known: Known, partition: TopicIdPartition) -> None:
        """DELETE_FINISHED: brokers forget it, and nobody looks for its objects any more."""
        excused = self._watch.may_leave_objects | self._watch.wrote_late | self._watch.never_begun
        if known.segment_id in excused or self._watch.foreign_history:
            return
        row = self._watch.rows.known.get(known.segment_id)
        place = f"{partition.topic}-{partition.topic_id}/{partition.partition}/{known.start_offset:020d}"
        left = [one for one in _SUFFIXES if f"{place}-{known.segment_id}.{one}" in self._world.store.objects]
        was_finished = known.segment_id in self._finished_there
        if left and was_finished and (row is None or row.state == ROW_DELETING):
            self._watch.broken("objects go before the topic forgets them", f"{partition} {known.segment_id}: {left}")

    @property
    def _finished_there(self) -> set[str]:
        """Ids of all that was ever FINISHED in the topic."""
        return {
            str(said.segment_id.id)
            for records in self._world.topic.records
            for said in (said_by(record.value) for record in records)
            if int(said.state) == FINISHED
        }


def _place(partition: TopicIdPartition) -> Place:
    return str(partition.topic_id), partition.partition


def _described(said: Any) -> str:
    offsets = f" {said.start_offset}..{said.end_offset}" if isinstance(said, SegmentRecord) else ""
    return f"{said.state.name} of {str(said.segment_id.id)[:6]}{offsets}"
