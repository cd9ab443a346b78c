"""Do the batches of a segment stand where offsets and leader epochs say? Neither is under a batch's CRC."""

import numpy as np

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import BatchTable


class OffsetOrder:
    """Offsets go on from `start_offset` to `end_offset` (both inclusive), without a gap and none twice.

    A batch outside of them, or at or below one that was reached before, is misplaced; it fills no gap. With
    `begins_anywhere` the first batch is taken where it stands: the ones before it were not read.
    """

    def __init__(self, start_offset: int, end_offset: int, *, begins_anywhere: bool = False) -> None:
        self.missing = Faults()
        self.misplaced = Faults()
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._reached = start_offset - 1
        self._begins_anywhere = begins_anywhere

    def take(self, table: BatchTable) -> None:
        base, last = table.base_offsets, table.last_offsets
        inside = (base >= self._start_offset) & (last <= self._end_offset) & (last >= base)
        if self._begins_anywhere and inside[0]:
            self._reached = int(base[0]) - 1
        self._begins_anywhere = False
        ends = np.where(inside, last, self._start_offset - 1)
        reached = np.maximum.accumulate(np.concatenate(([self._reached], ends)))
        before = reached[:-1]
        self.misplaced.add_rows(
            ~inside | (base <= before),
            lambda row: f"{table.named(row)} follows offset {before[row]} in {self._start_offset}..{self._end_offset}",
        )
        gaps = np.where(inside, base - before - 1, 0)
        if (gaps > 0).any():
            row = int((gaps > 0).argmax())
            self._add_missing(int(before[row]) + 1, int(base[row]) - 1, int(gaps[gaps > 0].sum()))
        self._reached = int(reached[-1])

    def end(self) -> None:
        """No batch follows: what was not reached is missing."""
        if self._reached < self._end_offset:
            self._add_missing(self._reached + 1, self._end_offset, self._end_offset - self._reached)

    def _add_missing(self, first: int, last: int, count: int) -> None:
        self.missing.add(f"offsets {first}..{last} are in no batch", count)


class EpochOrder:
    """The leader epoch of every batch is the one that `leader_epochs` has for its offsets.

    A history that was cut at the front tells of the batches before it only how high their epochs may be.
    """

    def __init__(self, leader_epochs: LeaderEpochs) -> None:
        self.wrong = Faults()
        self._epochs = np.array([epoch for epoch, _ in leader_epochs], dtype=np.int64)
        self._starts = np.array([start for _, start in leader_epochs], dtype=np.int64)
        self._before = 0

    def take(self, table: BatchTable) -> None:
        base, last, epochs = table.base_offsets, table.last_offsets, table.column("partition_leader_epoch")
        entry = np.searchsorted(self._starts, last, side="right") - 1
        known = np.maximum(entry, 0)
        wrong = (epochs != self._epochs[known]) | ((entry > 0) & (base < self._starts[known]))
        fallen = epochs < np.concatenate(([self._before], epochs[:-1]))
        wrong = np.where(entry < 0, (epochs > self._epochs[0]) | fallen, wrong)
        self.wrong.add_rows(
            wrong,
            lambda row: (
                f"{table.named(row)} has leader epoch {epochs[row]}, the metadata {self._epochs[known[row]]}"
                f" from {self._starts[known[row]]}"
            ),
        )
        self._before = int(epochs[-1])
