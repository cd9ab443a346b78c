"""Which transactions are open, and so how far a log is stable. Pure: batch headers in, offsets out.

Starts from a producer snapshot and follows the batches after it, as a broker does when it loads a log. A transactional
data batch opens its producer's transaction at the batch's base offset, an ABORT or COMMIT marker ends it.
Source: Kafka's ProducerStateManager.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from include.tiering.formats.producer_snapshot import ProducerEntry
from include.tiering.formats.record_batch import ControlType, LogBatch
from include.tiering.formats.transaction_index import AbortedTxn


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """No marker was seen for it yet. `first_offset` is inclusive."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """`last_offset` (inclusive) is that of its marker; `last_stable_offset` (exclusive) as it was right after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Transactions:
    """`open`: by first offset. `completed`: by marker, those whose marker is among the batches that were read."""

    open: tuple[OpenTransaction, ...]
    completed: tuple[CompletedTransaction, ...]

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset that a read-committed consumer may not see yet, at most `high_watermark` (exclusive).

        A transaction whose marker is not below the high watermark counts as open, as it does for a broker. A lower
        bound of the high watermark gives a lower bound, provided the snapshot was taken at or below it.
        """
        unstable = [txn.first_offset for txn in self.open]
        unstable += [txn.first_offset for txn in self.completed if txn.last_offset >= high_watermark]
        return min(high_watermark, *unstable) if unstable else high_watermark

    @property
    def aborted(self) -> tuple[AbortedTxn, ...]:
        """What the transaction indexes of the batches that were read hold."""
        return tuple(
            AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in self.completed
            if txn.aborted
        )


def open_transactions(entries: Iterable[ProducerEntry], batches: Iterable[LogBatch]) -> Transactions:
    """What is open after `batches`, which follow the snapshot of `entries` (none: the log's start) without a gap."""
    first_offsets = {
        entry.producer_id: entry.current_txn_first_offset for entry in entries if entry.has_open_transaction
    }
    completed = []
    for _, header, control in batches:
        if not header.is_control:
            if header.is_transactional:
                first_offsets.setdefault(header.producer_id, header.base_offset)
        elif control in (ControlType.ABORT, ControlType.COMMIT) and header.producer_id in first_offsets:
            first_offset = first_offsets.pop(header.producer_id)
            completed.append(
                CompletedTransaction(
                    producer_id=header.producer_id,
                    first_offset=first_offset,
                    last_offset=header.last_offset,
                    last_stable_offset=min(first_offsets.values(), default=header.last_offset + 1),
                    aborted=control is ControlType.ABORT,
                )
            )
    still_open = sorted(first_offsets.items(), key=lambda item: item[1])
    return Transactions(tuple(OpenTransaction(*item) for item in still_open), tuple(completed))
