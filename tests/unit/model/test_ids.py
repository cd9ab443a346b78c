"""Uuids, topic names, partitions, segment ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid, is_legal_topic_name


def test_zero_is_written_as_kafka_does():
    assert str(Uuid(bytes(16))) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert Uuid(bytes(16)).is_zero
    assert not Uuid(bytes(15) + b"\x01").is_zero


def test_golden_text():
    assert Uuid.parse("_-AH-7LwQcaAxdMHV7n1wg").value.hex() == "ffe007fbb2f041c680c5d30757b9f5c2"


@given(st.binary(min_size=16, max_size=16))
def test_text_round_trip(value: bytes):
    assert Uuid.parse(str(Uuid(value))).value == value
    assert len(str(Uuid(value))) == 22


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 21 + "=",
        "A" * 21 + "/",
        "A" * 21 + "+",
        "A" * 21 + " ",
        "A" * 21 + "é",
        # The last character carries four bits that no byte uses: only one spelling is the canonical one.
        "A" * 21 + "B",
    ],
)
def test_other_texts_are_refused(text: str):
    with pytest.raises(ValueError, match="Uuid"):
        Uuid.parse(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_other_lengths_are_refused(size: int):
    with pytest.raises(ValueError, match=str(size)):
        Uuid(bytes(size))


def test_random_is_a_version_4_uuid():
    drawn = Uuid.random(lambda size: b"\x11" * size)
    assert drawn.value[6] >> 4 == 4
    assert drawn.value[8] >> 6 == 0b10


def test_random_is_drawn_again_while_its_text_begins_with_a_dash():
    draws = iter([b"\xf8" + bytes(15), b"\x01" + bytes(15)])
    assert Uuid.random(lambda size: next(draws)).value[0] == 1


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_names(name: str):
    assert is_legal_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "a\n", "\n", "é", "a\x00"])
def test_illegal_topic_names(name: str):
    assert not is_legal_topic_name(name)
    with pytest.raises(ValueError, match="topic name"):
        TopicIdPartition(Uuid(bytes(16)), 0, name)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partitions_are_32_bit(partition: int):
    with pytest.raises(ValueError, match=str(partition)):
        TopicIdPartition(Uuid(bytes(16)), partition, "orders")


def test_the_name_is_a_label():
    topic_id = Uuid(b"0123456789abcdef")
    assert TopicIdPartition(topic_id, 1, "old") == TopicIdPartition(topic_id, 1, "new")
    assert hash(TopicIdPartition(topic_id, 1, "old")) == hash(TopicIdPartition(topic_id, 1, "new"))
    assert TopicIdPartition(topic_id, 1, "old") != TopicIdPartition(Uuid(bytes(16)), 1, "old")


def test_printed_forms():
    partition = TopicIdPartition(Uuid(bytes(16)), 3, "orders")
    assert str(partition) == "orders-3"
    assert str(RemoteLogSegmentId(partition, Uuid(bytes(16)))) == "orders-3:AAAAAAAAAAAAAAAAAAAAAA"
