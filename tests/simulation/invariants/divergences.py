"""Where a source stopped to continue what is archived: what was recorded is true, and holds its partition back."""

from typing import TYPE_CHECKING, Final

from include.tiering.model.segments import TopicIdPartition
from tests.simulation.invariants.rows import FINISHED, Row

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

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
