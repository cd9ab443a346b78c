import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import indexes
from include.tiering.formats.indexes import ProducerEntry

# Both written by Kafka.
EMPTY = bytes.fromhex("000148674bc700000000")
ONE_PRODUCER = bytes.fromhex(
    "000185a4c54c0000000100000000000010920001000000060000000000000065000000010000018bcfe5680a000000090000000000000064"
)
PRODUCER = ProducerEntry(
    producer_id=4242,
    producer_epoch=1,
    last_sequence=6,
    last_offset=101,
    offset_delta=1,
    timestamp_ms=1_700_000_000_010,
    coordinator_epoch=9,
    current_txn_first_offset=100,
)


def test_snapshots_that_kafka_wrote() -> None:
    assert indexes.parse_producer_snapshot(EMPTY) == ()
    assert indexes.parse_producer_snapshot(ONE_PRODUCER) == (PRODUCER,)


def test_the_same_bytes_as_kafka() -> None:
    assert indexes.EMPTY_SNAPSHOT == EMPTY
    assert indexes.serialize_producer_snapshot([PRODUCER]) == ONE_PRODUCER


def test_minus_one_means_no_open_transaction() -> None:
    assert PRODUCER.has_open_transaction
    assert not ProducerEntry(1, 0, -1, -1, 0, 0, -1, -1).has_open_transaction
    assert ProducerEntry(1, 0, -1, -1, 0, 0, -1, 0).has_open_transaction


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"", 0, "0 bytes are outside"),
        (EMPTY[:9], 0, "9 bytes are outside"),
        (b"\0\x02" + EMPTY[2:], 0, "version 2 is not 1"),
        (EMPTY[:-1] + b"\x01", 6, "1 producers announced in 10 bytes"),
        (EMPTY[:6] + b"\x7f\xff\xff\xff", 6, "2147483647 producers"),
        (EMPTY[:6] + b"\xff\xff\xff\xff", 6, "-1 producers"),
        (ONE_PRODUCER + b"\0", 6, "1 producers announced in 57 bytes"),
        (ONE_PRODUCER[:-1], 6, "1 producers announced in 55 bytes"),
        (ONE_PRODUCER[:-1] + b"\x65", 2, "the header says 85a4c54c"),
        (EMPTY[:5] + b"\xc8" + EMPTY[6:], 2, "CRC-32C is 48674bc7"),
    ],
)
def test_damaged_snapshots(data: bytes, position: int, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        indexes.parse_producer_snapshot(data)
    assert caught.value.position == position
    assert message in caught.value.message
