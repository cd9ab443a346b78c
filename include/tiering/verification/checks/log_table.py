"""Headers of many batches side by side, so that what holds of each is asked of all at once."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from include.tiering.formats.log_batches import Fields
from include.tiering.formats.record_batch import (
    CONTROL_FLAG,
    HEADER,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ControlType,
)

TABLE_BATCHES: Final = 4096
"""Batches that are judged together: 250 KB of headers, whatever the size of the segment."""

_pack_header: Final = HEADER.pack_into
_COLUMNS: Final = np.dtype(list(zip(BatchHeader._fields, "qiibIhiqqqhii", strict=True))).newbyteorder(">")


@dataclass(frozen=True, slots=True, eq=False)
class BatchTable:
    """Batches in their order. Arrays have one item per batch; offsets are inclusive.

    `headers` has the fields of `BatchHeader` by name. `last_offsets` wraps around where a header says what cannot be:
    it is then below the base offset. `controls`: what the control batches say, by row.
    """

    positions: NDArray[np.int64]
    headers: NDArray[np.void]
    last_offsets: NDArray[np.int64]
    controls: dict[int, ControlType]

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> NDArray[np.int64]:
        """A field of the headers."""
        return self.headers[name].astype(np.int64)

    @property
    def base_offsets(self) -> NDArray[np.int64]:
        return self.column("base_offset")

    @property
    def sizes_bytes(self) -> NDArray[np.int64]:
        """Whole batches, headers included."""
        return self.column("batch_length") + LOG_OVERHEAD

    @property
    def is_control(self) -> NDArray[np.bool_]:
        return self._have(CONTROL_FLAG)

    @property
    def is_transactional(self) -> NDArray[np.bool_]:
        return self._have(TRANSACTIONAL_FLAG)

    def named(self, row: int) -> str:
        """A batch, for a person."""
        base, last = int(self.headers["base_offset"][row]), int(self.last_offsets[row])
        return f"batch {base}..{last} at byte {int(self.positions[row])}"

    def _have(self, flag: int) -> NDArray[np.bool_]:
        is_set: NDArray[np.bool_] = self.column("attributes") & flag != 0
        return is_set


class TableBuilder:
    """Takes headers one by one, up to `TABLE_BATCHES`."""

    def __init__(self) -> None:
        self._headers = bytearray(TABLE_BATCHES * HEADER.size)
        self._positions: list[int] = []
        self._controls: dict[int, ControlType] = {}

    def add(self, position: int, fields: Fields) -> int:
        """Returns how many were added since the last `take`."""
        positions = self._positions
        _pack_header(self._headers, len(positions) * HEADER.size, *fields)
        positions.append(position)
        return len(positions)

    def set_control(self, control: ControlType) -> None:
        """What the control batch that was added last says."""
        self._controls[len(self._positions) - 1] = control

    def take(self) -> BatchTable:
        """What was added, and begin again."""
        count = len(self._positions)
        headers = np.frombuffer(self._headers, dtype=_COLUMNS, count=count).astype(_COLUMNS.newbyteorder("="))
        table = BatchTable(
            positions=np.array(self._positions, dtype=np.int64),
            headers=headers,
            last_offsets=headers["base_offset"] + headers["last_offset_delta"],
            controls=self._controls,
        )
        self._positions, self._controls = [], {}
        return table
