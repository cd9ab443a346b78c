"""The batch that creates a topic, byte by byte, beside records made by other hands, and as the reader takes it."""

from include.tiering.formats.cluster_metadata import PartitionRecord, TopicRecord, decode, record_values, topic_batch
from include.tiering.formats.record_batch import parse_header
from include.tiering.model.segments import Uuid
from tests.doubles.metadata_records import partition_record, topic_record

ORDERS = Uuid(bytes(range(1, 17)))
NOW_MS = 1_700_000_000_000
# base offset, length | leader epoch, magic, CRC | attributes, last delta, times | no producer | two records
HEADER = (
    "0000000000000000 0000008a 00000000 02 c4950940 0000 00000001 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000002"
)
# length 33, attributes, deltas, no key, value of 27 bytes: frame 1, topic (2) version 0, name, id, no tags; no headers
TOPIC = "42 00 00 00 01 36  01 02 00  07 6f7264657273  0102030405060708090a0b0c0d0e0f10  00  00"
# length 54, value of 48 bytes: frame 1, partition (3) version 0, number, id, replicas, in sync, removed, added, leader,
# leader epoch 417, partition epoch
PARTITION = (
    "6c 00 00 02 01 60  01 03 00  00000000 0102030405060708090a0b0c0d0e0f10"
    "02 00000001  02 00000001  01 01  00000001 000001a1 00000000  00  00"
)


def test_the_bytes_are_these() -> None:
    made = topic_batch("orders", ORDERS, {0: 417}, broker_id=1, now_ms=NOW_MS)
    assert made == bytes.fromhex(HEADER + TOPIC + PARTITION)


def test_every_partition_has_its_leader_epoch() -> None:
    batch = topic_batch("orders", ORDERS, {1: 0, 0: 417}, broker_id=7, now_ms=NOW_MS)
    values = [bytes(value) for value in record_values(memoryview(batch), parse_header(batch))]
    assert [decode(value) for value in values] == [
        TopicRecord("orders", ORDERS),
        PartitionRecord(0, ORDERS, (7,), (7,), 7, 417),
        PartitionRecord(1, ORDERS, (7,), (7,), 7, 0),
    ]
    epochs = {0: 417, 1: 0}
    assert values == [
        topic_record("orders", ORDERS),
        *(partition_record(ORDERS, one, replicas=(7,), leader=7, leader_epoch=epochs[one]) for one in epochs),
    ]
