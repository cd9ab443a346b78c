"""Do the leader epochs in the batches agree with the partition's history?"""

from bisect import bisect_right
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.formats.record_batch import MAX_OFFSET
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs

_NO_EPOCH: Final = -1


class EpochGuard:
    """Follows the batches of a segment in order.

    A batch of the current `epoch` whose last offset is below `end_offset` needs no call. A history that was cut at the
    front (the log start moved up) tells of the batches before it only how high their epochs may be.
    """

    def __init__(self, history: LeaderEpochs | None) -> None:
        """`history` None or empty: epochs must only not fall."""
        self.epoch = _NO_EPOCH
        self.end_offset = -1
        self._history = history.entries if history is not None else ()
        self._start_offsets = [entry.start_offset for entry in self._history]
        self._seen: list[LeaderEpochEntry] = []

    @property
    def seen(self) -> LeaderEpochs:
        """The epochs of the batches, each from its first batch on; batches without an epoch are left out."""
        return LeaderEpochs(tuple(self._seen))

    def enter(self, epoch: int, first_offset: int, last_offset: int, position: int) -> None:
        """Takes the batch [first_offset, last_offset] at `position`, which the current epoch does not cover.

        Raises:
            FormatError: an epoch that falls, or another than the history has for these offsets.
        """
        if epoch < self.epoch:
            raise FormatError(f"leader epoch {epoch} at offset {first_offset} follows {self.epoch}", position)
        end_offset = self._checked_end(epoch, first_offset, last_offset, position)
        if epoch != self.epoch:
            self._seen.append(LeaderEpochEntry(epoch, first_offset))
        self.epoch, self.end_offset = epoch, end_offset

    def _checked_end(self, epoch: int, first_offset: int, last_offset: int, position: int) -> int:
        """First offset (exclusive end) at which the history must be asked again."""
        if not self._history:
            return MAX_OFFSET + 1
        found = bisect_right(self._start_offsets, last_offset) - 1
        if found < 0:
            start_offset, highest = self._history[0].start_offset, self._history[0].epoch
            if epoch > highest:
                message = (
                    f"leader epoch {epoch} at offset {first_offset}, the history has {highest} from {start_offset}"
                )
                raise FormatError(message, position)
            return start_offset
        entry = self._history[found]
        crosses = found > 0 and first_offset < entry.start_offset
        if epoch != entry.epoch or crosses:
            batch = f"leader epoch {epoch} at offsets {first_offset}..{last_offset}"
            raise FormatError(f"{batch}, the history has {entry.epoch} from {entry.start_offset}", position)
        following = self._start_offsets[found + 1 :]
        return following[0] if following else MAX_OFFSET + 1
