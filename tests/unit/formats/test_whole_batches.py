"""When a read is full: once nothing more fits, so that nothing more is asked for."""

import pytest

from include.tiering.formats.record_batch import WholeBatches
from tests.doubles.record_batches import record_batch

HEADER_BYTES = 61
"""Of a record batch of magic 2, before its records."""
BATCH = record_batch(0, count=1, value_bytes=100)


@pytest.mark.parametrize(
    ("room_bytes", "missing_bytes"),
    [(0, 0), (1, 0), (HEADER_BYTES - 1, 0), (HEADER_BYTES, HEADER_BYTES), (2 * HEADER_BYTES, 2 * HEADER_BYTES)],
)
def test_a_read_is_full_once_no_header_fits_any_more(room_bytes: int, missing_bytes: int) -> None:
    """Else bytes beyond the limit would be asked for, to find a batch that is too large."""
    collected = WholeBatches(0, len(BATCH) + room_bytes)
    collected.begin(0, 10 * len(BATCH), 0)
    assert collected.missing_bytes == len(BATCH) + room_bytes
    collected.feed(BATCH)
    assert (collected.full, collected.missing_bytes) == (missing_bytes == 0, missing_bytes)
    assert bytes(collected.records) == BATCH
