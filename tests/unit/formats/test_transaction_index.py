import struct

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import AbortedTxn

# Written by Kafka: producer 4242, first 100, last 102, last stable offset 103.
ENTRY = bytes.fromhex("00000000000000001092000000000000006400000000000000660000000000000067")


def _entry(first: int, last: int, version: int = 0) -> bytes:
    return struct.pack(">hqqqq", version, 7, first, last, last + 1)


def test_an_entry_that_kafka_wrote() -> None:
    assert list(indexes.parse_transaction_index(ENTRY)) == [AbortedTxn(4242, 100, 102, 103)]
    assert len(indexes.parse_transaction_index(ENTRY * 3)) == 3


def test_trimming_drops_what_is_not_a_whole_entry() -> None:
    assert indexes.trim_transaction_index(ENTRY + ENTRY[:33]) == ENTRY
    assert indexes.trim_transaction_index(ENTRY) == ENTRY
    assert indexes.trim_transaction_index(b"") == b""


def test_the_data_of_a_transaction_may_lie_before_the_segment() -> None:
    data = _entry(3, 102) + _entry(90, 110)
    assert len(indexes.check_transaction_index(data, base_offset=100, end_offset=110)) == 2


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (ENTRY + ENTRY[:5], 34, "not a multiple of 34"),
        (ENTRY + _entry(1, 104, version=1), 34, "version 1 is not 0"),
        (_entry(1, 99), 0, "ABORT marker 99 of entry 0"),
        (ENTRY + _entry(1, 111), 34, "ABORT marker 111 of entry 1"),
        (ENTRY + ENTRY, 34, "ABORT marker 102 of entry 1"),
        (ENTRY + _entry(105, 105), 34, "transaction 105..105 is not a range"),
        (ENTRY + _entry(-1, 105), 34, "transaction -1..105 is not a range"),
    ],
)
def test_entries_that_cannot_be(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        indexes.check_transaction_index(data, base_offset=100, end_offset=110)
    assert caught.value.position == position
    assert message in caught.value.message
