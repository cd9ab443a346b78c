"""The metadata topic: its check, its errors, its records and the partition of a segment."""

import random
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from include.tiering.errors import (
    MetadataTopicError,
    MetadataTopicRangeError,
    MetadataTopicRefusedError,
    MetadataTopicUnavailableError,
    PublicationRefusedError,
)
from include.tiering.formats.primitive_types import TaggedField
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionDeleteRecord,
    RemoteLogRecord,
    SegmentRecord,
    SegmentUpdateRecord,
    metadata_of,
    segment_record,
    update_record,
)
from include.tiering.kafka.metadata_topic.contract import MetadataTopicRecord, metadata_partition_of
from include.tiering.kafka.metadata_topic.kafka import (
    END_OF_PARTITION,
    LOGIN,
    UNKNOWN_PARTITION,
    KafkaMetadataTopic,
    _record_from,
    error_for,
)
from include.tiering.kafka.metadata_topic.record_check import ExpectedRecord, partition_choice, require_valid_record
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tests.doubles.broker_data import expected
from tests.doubles.sample_values import mutated_values, segment_row

# Only the expected record may be sent, to the partition where brokers look for it.

_STATES = tuple(RemoteLogSegmentState)
_STARTED, _FINISHED = _STATES[:2]


def _segment(**fields: Any) -> RemoteLogSegmentMetadata:
    return replace(segment_row().metadata, state=_STARTED, broker_id=424_242, **fields)


def _expected(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState = _STARTED) -> ExpectedRecord:
    return ExpectedRecord(segment, state, metadata_partition_of(segment.topic_id_partition, 50), 50)


def _record(segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> RemoteLogRecord:
    if state is _STARTED:
        return segment_record(segment)
    return update_record(
        RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            state,
            segment.event_timestamp_ms,
            segment.broker_id,
            segment.custom_metadata,
        )
    )


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"txn_index_empty": True},
        {"custom_metadata": b""},
        {"custom_metadata": b"\x00" * 20_000},
        {"segment_leader_epochs": LeaderEpochs.of((epoch, 100 + epoch // 20) for epoch in range(1_000))},
    ],
)
def test_what_the_codec_writes_is_sound(state: RemoteLogSegmentState, fields: dict[str, Any]) -> None:
    segment = _segment(**fields)
    require_valid_record(encode(_record(segment, state)), _expected(segment, state))


def test_a_topic_name_may_be_long() -> None:
    partition = TopicIdPartition(Uuid(bytes(range(16))), 3, "x" * 249)
    segment = _segment(remote_log_segment_id=RemoteLogSegmentId(partition, Uuid(bytes(range(16, 32)))))
    require_valid_record(encode(segment_record(segment)), _expected(segment))


def test_what_a_real_broker_wrote_is_sound_in_the_partition_where_it_was() -> None:
    begun: dict[str, RemoteLogSegmentMetadata] = {}
    for one in expected("tiered")["remote_log_metadata"]:
        value = bytes.fromhex(one["value_hex"])
        record = decode(value)
        if isinstance(record, SegmentRecord):
            begun[one["segment_id"]] = metadata_of(record)
        segment = replace(begun[one["segment_id"]], event_timestamp_ms=one["event_timestamp_ms"])
        require_valid_record(
            value, ExpectedRecord(segment, RemoteLogSegmentState[one["state"]], one["metadata_partition"], 3)
        )
    assert len(begun) > 20


def test_epochs_that_begin_within_a_segment_are_those_above_a_log_start() -> None:
    """Brokers write them so: records below were deleted, with their epochs, and the segment is copied whole."""
    segment = replace(_segment(), segment_leader_epochs=LeaderEpochs.of([(0, 101), (3, 120)]))
    require_valid_record(encode(segment_record(segment)), _expected(segment))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": _FINISHED}, "begins in state 0, not 1: every broker would stop"),
        (
            {"epochs": (EpochEntry(0, 99), EpochEntry(3, 120))},
            "first leader epoch is from 99, before its start 100",
        ),
        ({"epochs": (EpochEntry(0, 100), EpochEntry(3, 200))}, "begin outside 100..199"),
        ({"epochs": (EpochEntry(-1, 100), EpochEntry(3, 120))}, "begin outside 100..199"),
        ({"epochs": (EpochEntry(3, 100), EpochEntry(0, 120))}, "do not ascend"),
        ({"epochs": (EpochEntry(0, 100), EpochEntry(2, 120))}, "epochs is not the expected value"),
        ({"size_bytes": 0}, "a size of 0 bytes"),
        ({"size_bytes": -1}, "a size of -1 bytes"),
        ({"size_bytes": 4097}, "size_bytes is not the expected value"),
        ({"end_offset": 200}, "end_offset is not the expected value"),
        ({"start_offset": 99}, "start_offset is not the expected value"),
        ({"broker_id": 1}, "broker_id is not the expected value"),
        ({"max_timestamp_ms": 0}, "max_timestamp_ms is not the expected value"),
        ({"event_timestamp_ms": 0}, "event_timestamp_ms is not the expected value"),
        ({"txn_index_empty": True}, "txn_index_empty is not the expected value"),
        ({"custom_metadata": b""}, "custom_metadata is not the expected value"),
        ({"tags": (TaggedField(1, b"\x00\x00\x00\x07"),)}, "it ends in 01010400000007"),
        ({"epochs": (EpochEntry(0, 100, (TaggedField(1, b""),)),)}, r"a tagged field before byte"),
    ],
)
def test_a_segment_that_says_anything_else_is_refused(fields: dict[str, Any], says: str) -> None:
    segment = _segment()
    with pytest.raises(PublicationRefusedError, match=says):
        require_valid_record(encode(replace(segment_record(segment), **fields)), _expected(segment))


def test_offsets_and_epochs_that_no_codec_of_ours_writes_are_refused() -> None:
    segment = _segment()
    value = encode(segment_record(segment))
    backwards = value.replace((100).to_bytes(8, "big"), (300).to_bytes(8, "big"), 1)
    with pytest.raises(PublicationRefusedError, match=r"offsets 300\.\.199 are no range"):
        require_valid_record(backwards, _expected(segment))
    entries = b"\x03" + b"".join(
        epoch.to_bytes(4, "big") + start.to_bytes(8, "big") + b"\x00" for epoch, start in segment.segment_leader_epochs
    )
    assert entries in value
    with pytest.raises(PublicationRefusedError, match="it has no leader epoch"):
        require_valid_record(value.replace(entries, b"\x01"), _expected(segment))


@pytest.mark.parametrize(
    "fields",
    [
        {"start_offset": 0, "end_offset": 0, "segment_leader_epochs": LeaderEpochs.of([(0, 0)])},
        {"segment_size_bytes": 1},
        {"segment_size_bytes": 2**31 - 1},
        {"segment_leader_epochs": LeaderEpochs.of([(0, 199)])},
        {"segment_leader_epochs": LeaderEpochs.of([(0, 100), (1, 100)])},
        {"custom_metadata": b"x" * 126},
        {"custom_metadata": b"x" * 127},
        {"custom_metadata": b"x" * (128 * 128 - 2)},
        {"custom_metadata": b"x" * (128 * 128 - 1)},
    ],
)
def test_what_is_just_within_the_rules_is_sound(fields: dict[str, Any]) -> None:
    segment = _segment(**fields)
    require_valid_record(encode(segment_record(segment)), _expected(segment))


def test_a_state_that_kafka_does_not_have_is_refused() -> None:
    segment = _segment()
    value = encode(_record(segment, _FINISHED))
    assert value[-2:] == b"\x01\x00"
    for state in (4, 127):
        with pytest.raises(PublicationRefusedError, match=f"there is no state {state}"):
            require_valid_record(value[:-2] + bytes([state, 0]), _expected(segment, _FINISHED))


@pytest.mark.parametrize("head", [b"\x00\x00\x00", b"\x02\x00\x00", b"\x01\x02\x00", b"\x01\x00\x01"])
def test_a_frame_a_key_or_a_version_that_the_platform_never_writes_is_refused(head: bytes) -> None:
    segment = _segment()
    frame, key, version = head
    with pytest.raises(PublicationRefusedError, match=f"frame {frame}, key {key}, version {version} is no record"):
        require_valid_record(head + encode(segment_record(segment))[3:], _expected(segment))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": _STARTED}, "an update cannot begin a segment"),
        ({"state": RemoteLogSegmentState.DELETE_SEGMENT_STARTED}, "state is not the expected value"),
        ({"broker_id": 7}, "broker_id is not the expected value"),
        ({"custom_metadata": b"x"}, "custom_metadata is not the expected value"),
        ({"tags": (TaggedField(0, b"\x01"),)}, "it ends in 01000101"),
    ],
)
def test_an_update_that_says_anything_else_is_refused(fields: dict[str, Any], says: str) -> None:
    segment = _segment()
    record = _record(segment, _FINISHED)
    assert isinstance(record, SegmentUpdateRecord)
    with pytest.raises(PublicationRefusedError, match=says):
        require_valid_record(encode(replace(record, **fields)), _expected(segment, _FINISHED))


def test_another_partition_attempt_or_kind_of_record_is_refused() -> None:
    segment = _segment()
    partition = segment.topic_id_partition
    neighbour = replace(
        segment, remote_log_segment_id=RemoteLogSegmentId(replace(partition, partition=1), Uuid(b"0" * 16))
    )
    with pytest.raises(PublicationRefusedError, match="partition is not the expected value"):
        require_valid_record(encode(segment_record(neighbour)), _expected(segment))
    with pytest.raises(PublicationRefusedError, match="key is not the expected value"):
        require_valid_record(encode(_record(segment, _FINISHED)), _expected(segment))
    deletion = PartitionDeleteRecord(
        segment_record(segment).segment_id.partition, 1, 1, RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    )
    with pytest.raises(PublicationRefusedError, match="is no record of a segment"):
        require_valid_record(encode(deletion), _expected(segment))


def test_the_partition_where_no_broker_looks_is_refused() -> None:
    segment = _segment()
    expected = _expected(segment)
    elsewhere = replace(expected, metadata_partition=(expected.metadata_partition + 1) % 50)
    with pytest.raises(PublicationRefusedError, match=f"in partition {expected.metadata_partition}, not"):
        require_valid_record(encode(segment_record(segment)), elsewhere)


def test_no_damaged_value_passes_unless_it_says_the_same() -> None:
    segment = _segment(txn_index_empty=True, custom_metadata=b"abc")
    for state in (_STARTED, _FINISHED):
        value = encode(_record(segment, state))
        for damaged in mutated_values([value], 2_000, seed=7):
            try:
                require_valid_record(damaged, _expected(segment, state))
            except PublicationRefusedError:
                continue
            assert decode(damaged) == decode(value)


def test_what_ends_too_early_is_refused() -> None:
    segment = _segment()
    value = encode(segment_record(segment))
    for cut in range(len(value)):
        with pytest.raises(PublicationRefusedError, match=r"too early|ends in nothing"):
            require_valid_record(value[:cut], _expected(segment))


# What an error of librdkafka means: to be tried again, refused for good, or offsets that are not there.

REFUSED, RANGE, AWAY = MetadataTopicRefusedError, MetadataTopicRangeError, MetadataTopicUnavailableError


def error(code: int, words: str = "") -> KafkaError:
    return KafkaError(code, words) if words else KafkaError(code)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        # Codes of Kafka's protocol, which are positive.
        (1, RANGE),  # offset out of range
        (3, REFUSED),  # unknown topic or partition
        (5, AWAY),  # leader not available
        (6, AWAY),  # not leader for partition
        (7, AWAY),  # request timed out
        (10, REFUSED),  # message too large
        (17, REFUSED),  # invalid topic
        (19, AWAY),  # not enough replicas
        (29, REFUSED),  # not authorised for the topic
        (31, REFUSED),  # not authorised for the cluster
        (44, REFUSED),  # policy violation
        (58, REFUSED),  # login failed
        (87, REFUSED),  # invalid record
        # The client's own, which are negative.
        (KafkaError._ALL_BROKERS_DOWN, AWAY),
        (KafkaError._AUTHENTICATION, REFUSED),
        (KafkaError._AUTO_OFFSET_RESET, RANGE),
        (KafkaError._INVALID_ARG, REFUSED),
        (KafkaError._MSG_TIMED_OUT, AWAY),
        (KafkaError._SSL, REFUSED),
        (KafkaError._TIMED_OUT, AWAY),
        (KafkaError._TRANSPORT, AWAY),
        (KafkaError._UNKNOWN_PARTITION, REFUSED),
        (KafkaError._UNKNOWN_TOPIC, REFUSED),
    ],
)
def test_each_error_has_its_kind(code: int, kind: type[MetadataTopicError]) -> None:
    found = error_for("a record", error(code, "the broker's words"))
    assert type(found) is kind
    assert str(found) == "a record: the broker's words"
    assert found.retriable is (kind is AWAY)


def test_names_that_are_looked_for_are_librdkafkas() -> None:
    assert error(KafkaError._PARTITION_EOF).name() == END_OF_PARTITION
    assert error(KafkaError._UNKNOWN_PARTITION).name() == UNKNOWN_PARTITION
    assert {error(code).name() for code in (KafkaError._AUTHENTICATION, KafkaError._SSL, 58)} == LOGIN


def test_without_an_answer_it_is_away() -> None:
    found = error_for("offsets", None)
    assert (type(found), str(found)) == (AWAY, "offsets: no answer in time")


@pytest.mark.parametrize("call_error", [None, error(KafkaError._TIMED_OUT, "timed out")])
def test_a_client_error_about_a_password_refuses(call_error: KafkaError | None) -> None:
    found = error_for("offsets", call_error, error(KafkaError._AUTHENTICATION, "wrong password"))
    assert (type(found), str(found)) == (REFUSED, "offsets: wrong password")


def test_a_client_error_is_shown_if_the_call_has_none() -> None:
    client_error = error(KafkaError._TRANSPORT, "connection refused")
    assert str(error_for("offsets", None, client_error)) == "offsets: connection refused"
    assert str(error_for("offsets", error(7, "timed out"), client_error)) == "offsets: timed out"
    assert type(error_for("offsets", error(1, "no such offset"), client_error)) is RANGE


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        ([], "offsets: no answer in time"),
        ([(KafkaError._TRANSPORT, "first"), (KafkaError._ALL_BROKERS_DOWN, "second")], "offsets: first"),
        ([(KafkaError._TRANSPORT, "first"), (KafkaError._SSL, "certificate")], "offsets: certificate"),
        ([(KafkaError._SSL, "certificate"), (KafkaError._TRANSPORT, "later")], "offsets: certificate"),
        ([(KafkaError._SSL, "certificate"), (KafkaError._AUTHENTICATION, "password")], "offsets: password"),
        ([(58, "login failed"), (KafkaError._ALL_BROKERS_DOWN, "all down")], "offsets: login failed"),
    ],
)
def test_of_what_the_client_reports_during_a_call_the_newest_login_error_counts_or_else_the_first(
    reported: list[tuple[int, str]], said: str
) -> None:
    topic = KafkaMetadataTopic({"bootstrap.servers": "127.0.0.1:1"})
    report = topic._client_config()["error_cb"]

    def call() -> None:
        for code, words in reported:
            report(error(code, words))
        raise TimeoutError

    with pytest.raises(MetadataTopicError) as caught, topic._typed_errors("offsets"):
        call()
    assert str(caught.value) == f"__remote_log_metadata: {said}"


def test_what_the_client_reported_before_a_call_is_not_the_calls_fault() -> None:
    topic = KafkaMetadataTopic({"bootstrap.servers": "127.0.0.1:1"})
    topic._client_config()["error_cb"](error(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(MetadataTopicUnavailableError, match="no answer in time"), topic._typed_errors("offsets"):
        raise TimeoutError


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (BufferError(), MetadataTopicUnavailableError, "the client's queue is full"),
        (KafkaException(error(10, "too large")), MetadataTopicRefusedError, "too large"),
    ],
)
def test_what_librdkafka_raises_is_named_with_the_topic_and_the_call(
    raised: Exception, kind: type[MetadataTopicError], words: str
) -> None:
    topic = KafkaMetadataTopic({"bootstrap.servers": "127.0.0.1:1"}, topic="metadata")
    with pytest.raises(kind) as caught, topic._typed_errors("a record"):
        raise raised
    assert str(caught.value) == f"metadata: a record: {words}"


# A record as librdkafka hands it over.


def test_where_it_lies_when_it_was_written_and_what_it_holds() -> None:
    message = Message(topic="t", partition=0, offset=0, value=b"v", timestamp=(1, 1_700_000_000_000))
    assert _record_from(message) == MetadataTopicRecord(0, 0, 1_700_000_000_000, b"v")
    without_value = Message(topic="t", partition=7, offset=9, timestamp=(1, 5))
    assert _record_from(without_value) == MetadataTopicRecord(7, 9, 5, b"")


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="t", offset=1, value=b"v"),
        Message(topic="t", partition=1, value=b"v"),
        Message(topic="t", partition=1, offset=1, value="a deserializer's"),  # type: ignore[arg-type]
    ],
    ids=["no partition", "no offset", "text"],
)
def test_what_is_no_record_of_a_consumer_is_no_record(message: Message) -> None:
    with pytest.raises(TypeError, match="a partition, an offset and bytes"):
        _record_from(message)


# Which metadata partition a partition's records go to: Kafka's answers, and those of a real broker.


@pytest.mark.parametrize(
    ("topic_id", "choices"),
    [
        (Uuid(bytes(range(1, 17))), [13, 41, 44, 37, 10, 5]),
        (Uuid.parse("LWgrMmVrT0a__7a4SasuPA"), [1, 18, 30, 2]),
    ],
)
def test_the_choice_of_kafkas_own_partitioner(topic_id: Uuid, choices: list[int]) -> None:
    chosen = [metadata_partition_of(TopicIdPartition(topic_id, p, "any"), 50) for p in range(len(choices))]
    assert chosen == choices


def test_every_record_of_a_real_broker_is_where_it_is_looked_for() -> None:
    for one in expected("tiered")["remote_log_metadata"]:
        partition = TopicIdPartition(Uuid.parse(one["topic_id"]), one["partition"], one["topic"])
        assert metadata_partition_of(partition, 3) == one["metadata_partition"]


def test_both_ways_to_the_choice_agree() -> None:
    choose = random.Random(8)
    for _ in range(2_000):
        topic_id, partition = choose.randbytes(16), choose.randrange(2**31)
        count = choose.choice((1, 3, 50, 1_000))
        chosen = metadata_partition_of(TopicIdPartition(Uuid(topic_id), partition, "any"), count)
        assert chosen == partition_choice(topic_id, partition, count)
        assert 0 <= chosen < count


def test_a_topic_without_partitions_has_no_choice() -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        metadata_partition_of(TopicIdPartition(Uuid(bytes(16)), 0, "any"), 0)
