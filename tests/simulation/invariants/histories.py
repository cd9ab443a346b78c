"""What is archived after somebody decided to follow another history: one history at a time, each without a gap, and
nothing of those that were left is lost to who asks for it by its leader epochs."""

from typing import TYPE_CHECKING, Final

from tests.simulation.invariants.rows import FINISHED, Row

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

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
        """Whether a decision left something of it: damage to it stops nothing any more."""
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
