"""Can a broker have written these headers? What a batch's CRC covers may still be wrong from the start."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.formats.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Codec,
    ControlType,
)
from include.tiering.formats.records import MIN_RECORD_BYTES
from include.tiering.verification.checks.faults import Faults
from include.tiering.verification.checks.log_table import BatchTable

_KNOWN_FLAGS: Final = CODEC_MASK | LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)


class HeaderRules:
    """`impossible`: batches that no broker writes. `thinned`: batches with fewer records than offsets.

    Compaction thins batches, nothing else does; a topic that was compacted once may hold some.
    """

    def __init__(self) -> None:
        self.impossible = Faults()
        self.thinned = Faults()

    def take(self, table: BatchTable) -> None:
        def refuse(bad: NDArray[np.bool_], what: str) -> None:
            self.impossible.add_rows(bad, lambda row: f"{table.named(row)}: {what}")

        attributes, records = table.column("attributes"), table.column("record_count")
        slots = table.column("last_offset_delta") + 1
        codec, control = attributes & CODEC_MASK, table.is_control
        producer = table.column("producer_id")
        strange = np.zeros(len(table), dtype=np.bool_)
        strange[[row for row, said in table.controls.items() if said not in _MARKERS]] = True
        refuse((attributes & ~_KNOWN_FLAGS) != 0, "unknown attributes")
        refuse(codec > Codec.ZSTD, "an unknown codec")
        refuse(table.last_offsets < table.base_offsets, "no range of offsets")
        refuse((records < 0) | (records > slots), "a record count that its offsets do not hold")
        refuse((codec == Codec.NONE) & (records > _most_records(table)), "more records than fit")
        refuse(table.column("max_timestamp") < NO_TIMESTAMP, "a timestamp below -1")
        refuse((producer >= 0) & (table.column("producer_epoch") < 0), "a producer without an epoch")
        refuse(producer < NO_PRODUCER, "an impossible producer id")
        refuse(table.is_transactional & (producer < 0), "a transaction without a producer")
        refuse(control & ~table.is_transactional, "control outside of a transaction")
        refuse(control & ((codec != Codec.NONE) | (records != 1) | (slots != 1)), "not one plain control record")
        refuse(strange, "neither an ABORT nor a COMMIT")
        self.thinned.add_rows(
            (records >= 0) & (records < slots), lambda row: f"{table.named(row)} holds {records[row]} records"
        )


def _most_records(table: BatchTable) -> NDArray[np.int64]:
    return (table.sizes_bytes - HEADER_SIZE) // MIN_RECORD_BYTES


class Timestamps:
    """`largest_ms` of all batches, -1 if none has one; `above`: batches with a later one than `max_timestamp_ms`."""

    def __init__(self, max_timestamp_ms: int) -> None:
        self.above = Faults()
        self.largest_ms = NO_TIMESTAMP
        self._max_timestamp_ms = max_timestamp_ms

    def take(self, table: BatchTable) -> None:
        timestamps = table.column("max_timestamp")
        self.above.add_rows(
            timestamps > self._max_timestamp_ms,
            lambda row: f"{table.named(row)} has timestamp {timestamps[row]}, above {self._max_timestamp_ms}",
        )
        self.largest_ms = max(self.largest_ms, int(timestamps.max()))
