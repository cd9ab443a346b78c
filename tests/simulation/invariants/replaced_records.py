"""Nothing is copied behind records that the source has replaced: from then on nobody would find them. Nor is it
finished, where the source that was opened has them replaced.
"""

from typing import TYPE_CHECKING, Any

from include.tiering.model.segments import TopicIdPartition
from tests.simulation.invariants.retention import limits_of
from tests.simulation.invariants.rows import Row
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.records import Record, size_of

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch


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
