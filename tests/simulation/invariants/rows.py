"""What must hold of segment rows and counters, asked after every change of the database.

Rows are read past the product, compared with those of before, and what became FINISHED is compared with what the model
brokers wrote and the model store holds.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.world.records import SNAPSHOT, Record, bytes_of, index_bytes, records_of

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

STARTED, FINISHED, DELETING, GONE = range(4)
SUFFIXES = ("log", "indexes", "rsm-manifest")
"""Of the objects of one segment."""
NAMES = ("STARTED", "FINISHED", "DELETE_STARTED", "DELETE_FINISHED")
_LEGAL = {(STARTED, FINISHED), (STARTED, DELETING), (FINISHED, DELETING), (DELETING, GONE)}
READ_TABLES = ("segments", "partitions", "size_counters", "divergences")
_QUERY = """
    SELECT s.segment_id, s.topic_id, s.partition, t.name, s.start_offset, s.end_offset, s.size_bytes, s.leader_epochs,
           s.state, s.max_timestamp_ms, s.fencing_token, s.verdict, s.superseded_by, s.given_up_at_ms IS NOT NULL,
           s.verdict_detail, s.history
    FROM segments s JOIN topics t ON t.cluster_id = s.cluster_id AND t.topic_id = s.topic_id
"""
_SKIPPED = "SELECT first_offset, last_offset FROM skipped_offsets WHERE topic_id = ? AND partition = ?"
_COUNTERS = "SELECT topic_id, partition, leader_epoch, state, size_bytes, segments FROM size_counters"
_PARTITIONS = "SELECT topic_id, partition, log_start_offset, leader_epochs, finished_bytes FROM partitions"


class Row(NamedTuple):
    """One attempt as the database has it."""

    segment_id: str
    topic_id: str
    partition: int
    topic: str
    start_offset: int
    end_offset: int
    size_bytes: int
    leader_epochs: str
    state: int
    max_timestamp_ms: int
    fencing_token: int
    verdict: str = "none"
    superseded_by: str | None = None
    given_up: int = 0
    verdict_detail: str = ""
    history: int = 0
    """0, or the number of the decision that it was copied after."""

    @property
    def stops(self) -> bool:
        """It failed, and nobody decided to go on without it."""
        return self.state == FINISHED and self.verdict == "failed" and not self.given_up

    @property
    def range(self) -> tuple[str, int, int, int]:
        return self.topic_id, self.partition, self.start_offset, self.end_offset

    @property
    def place(self) -> tuple[str, int]:
        return self.topic_id, self.partition

    @property
    def epochs(self) -> list[tuple[int, int]]:
        pairs = (entry.split(":") for entry in self.leader_epochs.split(","))
        return [(int(epoch), int(start)) for epoch, start in pairs]

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(Uuid.parse(self.topic_id), self.partition, self.topic)

    def key(self, suffix: str) -> str:
        """Of one of its objects."""
        return f"{self.topic}-{self.topic_id}/{self.partition}/{self.start_offset:020d}-{self.segment_id}.{suffix}"

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} {self.start_offset}..{self.end_offset} ({self.segment_id[:6]},"
            f" {NAMES[self.state]})"
        )


class Rows:
    """Segment rows as they were after the last step."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self.known: dict[str, Row] = {}
        self.log_starts: dict[tuple[str, int], int] = {}
        self.archived_since_ms: dict[str, int] = {}
        """When something of a topic id first became FINISHED."""
        self._ever: set[str] = set()
        self._removed: set[str] = set()
        """Attempts that were tombstones. A restore may bring back their rows: who removed them goes on with its lease
        of before, and the next holder removes them again."""
        self._agreed: dict[str, str] = {}
        self._begun_with: dict[str, frozenset[Record]] = {}
        """What the file of an attempt held when it began, where its epochs do not tell: a log start fell into it."""

    def check(self, process: Any, label: str) -> None:
        """Compare with before."""
        db = self._world.db
        now = {row[0]: Row(*row) for row in db.rows(_QUERY)}
        partitions = db.rows(_PARTITIONS)
        log_starts = {(topic_id, number): offset for topic_id, number, offset, *_ in partitions}
        before = self.known
        for place, offset in self.log_starts.items():
            if log_starts.get(place, 0) < offset:
                self._watch.broken("our log start never falls", f"{place}: {offset} -> {log_starts.get(place)}")
        for place, offset in log_starts.items():
            # A batch that asks again may raise it less far than was planned.
            highest = max(self._watch.log_starts_decided[place], default=0)
            is_decided = offset <= highest or self._watch.foreign_history
            if offset > self.log_starts.get(place, 0) and not is_decided:
                self._watch.broken("our log start rises by a decision alone", f"{place}: to {offset} by {label}")
            if offset > self.log_starts.get(place, 0):
                self._watch.only_copy.log_start_raised(place, self.log_starts.get(place, 0), offset, process)
        for segment_id, row in now.items():
            old = before.get(segment_id)
            if old is None:
                self._added(row, process)
                continue
            if old.state != row.state:
                self._changed(old, row, log_starts, now, process)
            if old.verdict != row.verdict:
                self._watch.quality.verified(row, process)
            if old.superseded_by not in (None, row.superseded_by):
                self._watch.broken("a failed segment is superseded once", f"{old} by {row.superseded_by}, too")
        for segment_id, row in before.items():
            if segment_id not in now and row.state != GONE:
                self._watch.broken("no row vanishes before it is a tombstone", f"{row} after {label}")
        self.known = now
        self.log_starts = log_starts
        self._recount(now, {(row[0], row[1]): row[4] for row in partitions})
        self._compare_histories({(row[0], row[1]): row[3] for row in partitions}, now)

    def accept(self) -> None:
        """After a restore: what the database says now is where it goes on from."""
        db = self._world.db
        self.known = {row[0]: Row(*row) for row in db.rows(_QUERY)}
        self.log_starts = {(topic_id, number): offset for topic_id, number, offset, *_ in db.rows(_PARTITIONS)}

    def _added(self, row: Row, process: Any) -> None:
        opened = self._world.opened.get((process, row.topic_id_partition, row.start_offset))
        if opened is not None and row.epochs[0][1] > row.start_offset:
            self._begun_with[row.segment_id] = frozenset(opened.records)
        if row.segment_id in self._ever:
            self._watch.broken("a segment id belongs to one attempt", f"{row} was there before")
        self._ever.add(row.segment_id)
        self._watch.histories.began(row)
        if row.state != STARTED:
            self._watch.broken("a segment begins as STARTED", f"{row}")
        for other in self.known.values():
            is_abandoned = other.state in (STARTED, DELETING) and other.segment_id not in self._watch.were_finished
            is_removed = other.segment_id in self._removed and self._watch.leases.is_of_before(process)
            is_apart = other.end_offset < row.start_offset or row.end_offset < other.start_offset
            is_in_flight = other.fencing_token == row.fencing_token and is_apart
            if other.place != row.place or not is_abandoned or is_removed or is_in_flight:
                continue
            if not self._may_stay(other, row):
                self._watch.broken(
                    "abandoned copies are removed before anything is copied", f"{row} began beside {other}"
                )

    def was_removed(self, row: Row) -> bool:
        """It is FINISHED again by a restore, and its objects went before that."""
        return row.state == FINISHED and row.segment_id in self._removed

    def _may_stay(self, other: Row, beside: Row) -> bool:
        """A whole copy may be all that is left of its offsets; so may parts, where the source has another segment."""
        keys = (other.key(suffix) for suffix in SUFFIXES)
        is_whole = all(key in self._world.store.objects for key in keys)
        is_other = (other.range, other.size_bytes) != (beside.range, beside.size_bytes)
        return other.state == STARTED and (is_whole or is_other)

    def _changed(
        self,
        old: Row,
        row: Row,
        log_starts: dict[tuple[str, int], int],
        now: dict[str, Row],
        process: Any,
    ) -> None:
        if (old.state, row.state) not in _LEGAL:
            self._watch.broken("states change along the edges", f"{old} became {NAMES[row.state]}")
        if row.state == FINISHED:
            self._finished(row, now, process)
            self._watch.only_copy.finished(row)
            self._watch.were_finished.add(row.segment_id)
            if process is not None:
                self._watch.sending.finished(row, process)
            self._watch.handing_over.finished(row)
        elif row.state == DELETING:
            if old.state == STARTED:
                self._watch.leases.abandoned(old, process)
                self._watch.only_copy.abandoned_copy_goes(old, process)
            if old.state == FINISHED and row.superseded_by is not None:
                self._superseded(old, row, now, process)
            elif old.state == FINISHED:
                self._watch.sending.deletion_began(old, process)
                self._watch.handing_over.deletion_began(old)
                if row.end_offset >= log_starts.get(row.place, 0):
                    self._watch.broken(
                        "the log start is raised before a deletion begins",
                        f"{old}, log start {log_starts.get(row.place, 0)}",
                    )
        elif row.state == GONE:
            self._removed.add(row.segment_id)
            left = [suffix for suffix in SUFFIXES if row.key(suffix) in self._world.store.objects]
            excused = self._watch.may_leave_objects | self._watch.wrote_late
            # What is deleted elsewhere stays where it is: an orphan. A directory is held open, so nothing of it is.
            places = self._world.places
            is_elsewhere = not places.is_directory and process in places.misdirected
            if is_elsewhere:
                self._watch.deleted_elsewhere.add(row.segment_id)
            if left and row.segment_id not in excused and not is_elsewhere:
                self._watch.broken("objects are deleted before their row", f"{row} still has {', '.join(left)}")

    def _superseded(self, old: Row, row: Row, now: dict[str, Row], process: Any) -> None:
        new = now.get(row.superseded_by or "")
        is_new = new is not None and new.state == FINISHED and self.known[new.segment_id].state == STARTED
        if new is None or not is_new or new.range != old.range or old.verdict != "failed":
            self._watch.broken("a new copy takes the place of a failed one at once", f"{old} by {new}")
        since = self._world.store.hides_all_since
        is_seen = row.key("log") not in self._world.store.hidden
        others_passed = any(
            one.state == FINISHED and one.verdict == "passed" and one.key("log") in self._world.store.hidden
            for one in now.values()
        )
        if since is not None and process is not None and process.began_step > since and others_passed and not is_seen:
            self._watch.broken("a segment is copied again only where other segments are", f"{old} by {process.name}")
        self._watch.sending.superseded(row)

    def _finished(self, row: Row, now: dict[str, Row], process: Any) -> None:
        replaced = next((one for one in now.values() if one.superseded_by == row.segment_id), None)
        self._watch.histories.finished(row, replaced)
        if replaced is None:
            self._came_next(row, now)
            self._watch.replaced_records.finished(row, process)
            self._watch.divergences.finished(row, now)
        for other in now.values():
            is_alike = other.range == row.range and other.history == row.history
            if is_alike and other.state == FINISHED and other.segment_id != row.segment_id:
                self._watch.broken("of copies of the same offsets one is FINISHED", f"{row} and {other}")
        self._watch.ever_finished.setdefault(row.place, {})[row.segment_id] = row
        self.archived_since_ms.setdefault(row.topic_id, self._world.scheduler.now_ms)
        self.check_bytes(row)
        log = self._watch.log_of(row.topic_id_partition)
        records = self.records(row)
        if log is None or records is None:
            return
        unstable = [record for record in records if record not in log.stable]
        if unstable:
            self._watch.broken(
                "nothing is FINISHED that is not durable", f"{row} holds (epoch, offset) {unstable[0]}, never stable"
            )

    def _came_next(self, row: Row, now: dict[str, Row]) -> None:
        """It takes nobody's place."""
        highest = self._watch.histories.highest(row.place)
        if highest is not None and row.end_offset <= highest:
            self._watch.broken("FINISHED ascends", f"{row} after an end at {highest}")
        if highest is not None and not self.is_decided(row, highest + 1, row.start_offset - 1):
            self._watch.broken("FINISHED leaves no gap", f"{row} after an end at {highest}")
        stopping = (one for one in now.values() if one.place == row.place and one.stops)
        failed = next((one for one in stopping if not self._watch.histories.is_left(one)), None)
        if failed is not None:
            self._watch.broken("a failed segment stops its partition", f"{row} came behind {failed}")

    def is_decided(self, row: Row, first: int, last: int) -> bool:
        """Whether decisions cover every offset from `first` to `last`, or there is none."""
        if first > last:
            return True
        ranges = self._world.db.rows(_SKIPPED, row.topic_id, row.partition)
        return all(any(begin <= offset <= end for begin, end in ranges) for offset in range(first, last + 1))

    def records(self, row: Row) -> list[Record] | None:
        """What a segment of this row holds."""
        held = self._begun_with.get(row.segment_id)
        if held is not None:
            return sorted(held, key=lambda record: record[1])
        log = self._watch.log_of(row.topic_id_partition)
        return records_of(row.start_offset, row.end_offset, row.epochs, log.timestamps if log is not None else ())

    def check_bytes(self, row: Row) -> None:
        """The objects of a FINISHED row."""
        fault = self._fault(row)
        if fault is not None:
            self._watch.broken("FINISHED has its exact bytes", f"{row}: {fault}")

    def is_right(self, row: Row) -> bool:
        """Whether the store has what was written, now."""
        return self._fault(row) is None

    def _fault(self, row: Row) -> str | None:
        objects = self._world.store.objects
        partition = row.topic_id_partition
        records = self.records(row)
        if records is None:
            return f"no epoch covers its start: {row.leader_epochs}"
        log = objects.get(row.key("log"))
        expected = bytes_of(partition, records)
        if log != expected or row.size_bytes != len(expected):
            found = "nothing" if log is None else f"{len(log)} bytes: {log[:60]!r}"
            return f"stored is {found}, written was {expected[:60]!r}"
        indexes = objects.get(row.key("indexes"), b"")
        begins = index_bytes("index", records) + index_bytes("timeindex", records) + SNAPSHOT
        if not indexes.startswith(begins) or row.key("rsm-manifest") not in objects:
            return "its indexes or its manifest are not there"
        return None

    def _compare_histories(self, histories: dict[tuple[str, int], str], now: dict[str, Row]) -> None:
        """What was archived under an epoch is known under it as long as it is there. An unclean election excepted."""
        for row in now.values():
            if row.state != FINISHED:
                continue
            history = histories.get(row.place, "")
            if self._agreed.get(row.segment_id) == history:
                continue
            self._agreed[row.segment_id] = history
            log = self._watch.log_of(row.topic_id_partition)
            if log is None or log.unclean:
                continue
            known = [(int(epoch), int(start)) for epoch, start in (one.split(":") for one in history.split(",") if one)]
            for (epoch, start), (_, following) in pairwise([*row.epochs, (-1, row.end_offset + 1)]):
                if start != following and max((one for one, begins in known if begins <= start), default=None) != epoch:
                    self._watch.broken(
                        "known leader epochs are never lost",
                        f"{row} has epoch {epoch} from {start}, the history is {history!r}",
                    )

    def _recount(self, now: dict[str, Row], by_triggers: dict[tuple[str, int], int]) -> None:
        counted: dict[tuple[str, int, int, int], tuple[int, int]] = {}
        for row in now.values():
            if row.state == GONE:
                continue
            for epoch in (-1, *(epoch for epoch, _ in row.epochs)):
                key = (row.topic_id, row.partition, epoch, row.state)
                size_bytes, segments = counted.get(key, (0, 0))
                counted[key] = (size_bytes + row.size_bytes, segments + 1)
        stored = {tuple(one[:4]): tuple(one[4:]) for one in self._world.db.rows(_COUNTERS) if one[5] or one[4]}
        if stored != counted:
            differing = sorted(key for key in {*stored, *counted} if stored.get(key) != counted.get(key))
            key = differing[0]
            self._watch.broken(
                "counters equal a recount", f"{key}: counter {stored.get(key)}, recount {counted.get(key)}"
            )
        for place, size_bytes in by_triggers.items():
            recounted, _ = counted.get((*place, -1, FINISHED), (0, 0))
            if size_bytes != recounted:
                self._watch.broken("counters equal a recount", f"{place}: triggers {size_bytes}, recount {recounted}")
