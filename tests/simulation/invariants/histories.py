"""Histories of partitions: divergences, and records that were replaced."""

from typing import TYPE_CHECKING, Any, Final

from include.tiering.model.segments import TopicIdPartition
from tests.simulation.invariants.retention import limits_of
from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.records import Record, size_of

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch


# What is archived after somebody decided to follow another history: one history at a time, each without a gap, and
# nothing of those that were left is lost to who asks for it by its leader epochs.

_DECIDED: Final = """
    SELECT topic_id, partition, number, followed_from FROM divergences WHERE followed_from IS NOT NULL ORDER BY number
"""
_Place = tuple[str, int]
_FIRST: Final = (0, 0)


class Histories:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._decided: dict[_Place, tuple[int, int]] = {}
        """The newest decision: its number, and the offset from which its source is followed."""
        self._began_in: dict[str, int] = {}
        """By attempt, the newest decision when it began."""
        self._all: list[tuple[_Place, int, int]] = []
        """Every decision: its partition, its number, and from where its source is followed."""

    def check(self) -> None:
        """Take notice of decisions."""
        rows = self._watch.world.db.rows(_DECIDED)
        self._decided = {(topic_id, number): (count, offset) for topic_id, number, count, offset in rows}
        self._all = [((topic_id, number), count, offset) for topic_id, number, count, offset in rows]

    def newest(self, place: _Place) -> tuple[int, int]:
        """Its number, and where it begins."""
        return self._decided.get(place, _FIRST)

    def began(self, row: Row) -> None:
        """An attempt."""
        self._began_in[row.segment_id] = self.newest(row.place)[0]

    def finished(self, row: Row, replaced: Row | None) -> None:
        """What was read before a decision may be of the history that was left."""
        newest = self.newest(row.place)[0]
        if replaced is not None:
            if row.history != replaced.history:
                self._watch.broken("a new copy is of the history of what failed", f"{row}: {row.history}")
        elif self._began_in.get(row.segment_id, newest) != newest and not self._watch.foreign_history:
            self._watch.broken("an attempt from before a decision is not FINISHED after it", str(row))
        elif row.history != newest:
            self._watch.broken("what is copied is of the newest history", f"{row}: {row.history}, newest is {newest}")

    def is_left(self, row: Row) -> bool:
        """Whether a decision replaced the history of some of it: damage to it stops nothing any more."""
        return any(
            place == row.place and number > row.history and offset <= row.end_offset
            for place, number, offset in self._all
        )

    def highest(self, place: _Place) -> int | None:
        """The last offset that was ever FINISHED of the history that is followed now, or of one before it, below where
        later ones begin.

        A history that begins behind all that was FINISHED goes back to nothing: what is between is skipped, which is a
        permission. Of that a source which has it again is copied first, and only then what the history begins with.
        """
        ever = self._watch.ever_finished.get(place, {}).values()
        known = self._watch.rows.known
        ends = [(known.get(one.segment_id, one).history, one.end_offset) for one in ever]
        begins = {number: offset for of, number, offset in self._all if of == place}
        return max(
            (min([end, *(offset - 1 for number, offset in begins.items() if number > of)]) for of, end in ends),
            default=None,
        )

    def was_remote(self, place: _Place, first: int, last: int) -> bool:
        """Whether some of these offsets was ever FINISHED in the history that is followed now, or below its begin."""
        number, begins = self.newest(place)
        known = self._watch.rows.known
        for one in self._watch.ever_finished.get(place, {}).values():
            is_left = known.get(one.segment_id, one).history < number
            end = min(one.end_offset, begins - 1) if is_left else one.end_offset
            if max(one.start_offset, first) <= min(end, last):
                return True
        return False

    def require_found(self) -> None:
        """In the end: whoever asks by a leader epoch gets the very record, whatever was decided."""
        watch = self._watch
        if watch.foreign_history:
            return
        for row in watch.rows.known.values():
            if row.state != FINISHED or row.verdict == "failed" or not self.newest(row.place)[0]:
                continue
            # Of what a broker's log start fell into, the records below have no epoch any more.
            log_start = max(watch.rows.log_starts.get(row.place, 0), row.epochs[0][1])
            for epoch, offset in watch.rows.records(row) or ():
                if offset < log_start:
                    continue
                found = watch.world.admin_metadata.segment_for_offset(row.topic_id_partition, epoch, offset)
                there = None if found is None else watch.rows.known.get(str(found.remote_log_segment_id.id))
                if there is None or (epoch, offset) not in (watch.rows.records(there) or ()):
                    watch.broken(
                        "what is archived is found by its leader epoch", f"{row}: epoch {epoch}, offset {offset}"
                    )
                    return


# Where a source stopped to continue what is archived: what was recorded is true, and holds its partition back.

_RECORDED: Final = "SELECT topic_id, partition, number, first_offset, last_offset FROM divergences"
_OPEN: Final = """
    SELECT topic_id, partition, first_offset, last_offset FROM divergences WHERE followed_from IS NULL
"""


class RecordedDivergences:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._seen: set[tuple[str, int, int]] = set()

    def check(self) -> None:
        """None is recorded of a log that never lost a stable record, nor of what a decision has left already."""
        for topic_id, number, count, first, last in self._watch.world.db.rows(_RECORDED):
            place = (topic_id, number, count)
            if place in self._seen:
                continue
            self._seen.add(place)
            logs = self._watch.world.cluster.logs
            log = next((log for p, log in logs.items() if (str(p.topic_id), p.partition) == place[:2]), None)
            if log is not None and not log.unclean and not self._watch.foreign_history:
                self._watch.broken("a divergence is recorded where there is one", f"{place}: {first}..{last}")
            if not self._watch.foreign_history and not self._watch.histories.was_remote(place[:2], first, last):
                self._watch.broken(
                    "recorded divergences belong to the history that is followed", f"{place}: {first}..{last}"
                )

    def finished(self, row: Row, now: dict[str, Row]) -> None:
        """For the first time, not in the place of another one."""
        log_start = self._watch.rows.log_starts.get(row.place, 0)
        others = [one for one in now.values() if one.place == row.place and one.state == FINISHED and one is not row]
        newest, begins = self._watch.histories.newest(row.place)
        for topic_id, number, first, last in self._watch.world.db.rows(_OPEN):
            waits = [
                one
                for one in others
                if max(first, log_start) <= one.end_offset <= last
                and (one.history >= newest or one.start_offset < begins)
            ]
            if (topic_id, number) == row.place and waits:
                self._watch.broken("nothing is copied while a divergence is open", f"{row}: {first}..{last} differ")

    def is_recorded(self, partition: TopicIdPartition) -> bool:
        place = (str(partition.topic_id), partition.partition)
        return any((row[0], row[1]) == place for row in self._watch.world.db.rows(_RECORDED))


# Nothing is copied behind records that the source has replaced: from then on nobody would find them. Nor is it
# finished, where the source that was opened has them replaced.


class ReplacedRecords:
    """Of one world, by what the source had in a segment, and below it, when it was opened."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._below: dict[tuple[Process, TopicIdPartition, int], list[Record]] = {}
        self._within: dict[tuple[Process, TopicIdPartition, int], dict[int, Record]] = {}
        self._files: dict[tuple[Process, TopicIdPartition, int], list[tuple[int, int, bool]]] = {}
        """First and last offset, and whether a log cleaner took some."""

    def opened(self, process: Process, opened: Any) -> None:
        place = (process, opened.partition, opened.segment.base_offset)
        self._below[place] = opened.records_below
        self._within[place] = {record[1]: record for record in opened.records}
        self._files[place] = opened.files_below

    def finished(self, row: Row, process: Process) -> None:
        """For the first time, not in the place of another one: all that its source had below it, as far as anything
        below is remote, is remote as it was there, unless somebody decided to go on without."""
        place = (process, row.topic_id_partition, row.start_offset)
        below, within = self._below.get(place, []), self._within.get(place, {})
        if not self._watch.foreign_history:
            for record in self._watch.rows.records(row) or []:
                if within.get(record[1], record) != record:
                    self._watch.broken(
                        "a copy is finished of what its source has", f"{row}: it has {within[record[1]]}"
                    )
                    return
        self._require_whole_ones(row, process)
        before = [one for one in self._watch.ever_finished.get(row.place, {}).values() if one is not row]
        if not below or not before or self._watch.foreign_history:
            return
        first = max(min(one.start_offset for one in before), self._watch.rows.log_starts.get(row.place, 0))
        remote = {record for one in before for record in self._watch.rows.records(one) or []}
        for record in below:
            is_replaced = record[1] >= first and record not in remote
            if is_replaced and not self._watch.rows.is_decided(row, record[1], record[1]):
                self._watch.broken("nothing is copied after replaced records", f"{row}: its source has {record}")
                return

    def _require_whole_ones(self, row: Row, process: Process) -> None:
        """What is whole where it is read is copied, whatever was decided; and of what is not, somebody decided so,
        before a first copy begins behind it, too."""
        highest = self._watch.histories.highest(row.place)
        if self._watch.foreign_history:
            return
        for first, last, is_compacted in self._files.get((process, row.topic_id_partition, row.start_offset), []):
            if highest is not None and last <= highest:
                continue
            if highest is not None and not is_compacted:
                self._watch.broken("a complete segment is copied in spite of a decision", f"{row}: {first}..{last}")
            wanted = first if highest is None else max(first, highest + 1)
            if highest is None and self._is_past_retention(row, first, last):
                continue
            if is_compacted and not self._watch.rows.is_decided(row, wanted, last):
                self._watch.broken("nobody goes on behind what was compacted by itself", f"{row}: {first}..{last}")

    def _is_past_retention(self, row: Row, first: int, last: int) -> bool:
        """A first copy begins behind what our retention would delete at once, compacted since or not: by a limit that
        was in force at some time, as the plan may be an old one, and by what any replica has behind it now, which is
        at least what there was then, unless it was cut off."""
        log = self._watch.log_of(row.topic_id_partition)
        if log is None:
            return False
        newest_ms = max((at_ms for (_, offset), at_ms in log.timestamps.items() if first <= offset <= last), default=0)
        behind_bytes = max(
            size_of(row.topic_id_partition, [record for record in replica.records() if record[1] > last])
            for replica in log.replicas.values()
        )
        return any(
            (ms is not None and newest_ms < self._watch.world.scheduler.now_ms - ms)
            or (size is not None and behind_bytes >= size)
            for ms, size in limits_of(self._watch, row.topic_id_partition, 0)
        )
