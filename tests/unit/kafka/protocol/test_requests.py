"""Requests and error codes."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    FormatError,
    UnknownTopicError,
)
from include.tiering.formats.cluster_metadata import ResourceType
from include.tiering.formats.primitive_types import Reader
from include.tiering.kafka.cluster.kafka_admin import open_transactions
from include.tiering.kafka.protocol import cluster_requests, fetch_requests, login, partition_requests
from include.tiering.kafka.protocol.cluster_requests import (
    AlterAnswer,
    ApiVersions,
    ApiVersionsAnswer,
    BrokerAddress,
    DescribeConfigs,
    DescribeLogDirs,
    FoundConfig,
    FoundConfigs,
    IncrementalAlterConfigs,
    LogDirsAnswer,
    LogSize,
    Metadata,
    MetadataAnswer,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Resource,
)
from include.tiering.kafka.protocol.fetch_requests import (
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchedPartition,
    OffsetForLeaderEpoch,
)
from include.tiering.kafka.protocol.login import AuthenticateAnswer, HandshakeAnswer, SaslAuthenticate, SaslHandshake
from include.tiering.kafka.protocol.messages import (
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Request,
    frame_request,
    parse_response,
    refusal,
)
from include.tiering.kafka.protocol.partition_requests import (
    DescribedTransaction,
    DescribeProducers,
    DescribeTransactions,
    FoundOffset,
    ListedTransaction,
    ListOffsets,
    ListTransactions,
    ListTransactionsAnswer,
    OffsetSpec,
    ProducersAnswer,
    ProducerState,
    TopicPartition,
)
from include.tiering.model.segments import Uuid
from tests.doubles.partial import Partial
from tests.doubles.segments import partition_of
from tests.doubles.source_tree import ROOT

# Requests and answers against bytes of an encoder that is not ours, made from Kafka's own message schemas.

ID: Final = Uuid(bytes(range(16)))
ORDERS: Final = TopicPartition("orders", 3)
FETCH: Final = Fetch(ID, 3, leader_epoch=7, offset=1_234_567_890_123, max_bytes=8_388_608, max_wait_ms=500, version=18)

REQUESTS: Final[list[tuple[Request[Any], int, str]]] = [
    (ApiVersions(), 3, "196b61666b612d74696572696e672d6f7065726174696f6e73023100"),
    (
        Metadata(names=["orders"], topic_ids=[ID]),
        12,
        "0300000000000000000000000000000000076f726465727300000102030405060708090a0b0c0d0e0f0000000000",
    ),
    (Metadata(every_topic=True), 12, "00000000"),
    (
        ListOffsets(OffsetSpec.LATEST, {ORDERS: 7}, read_committed=True),
        7,
        "ffffffff0102076f7264657273020000000300000007ffffffffffffffff000000",
    ),
    (
        ListOffsets(OffsetSpec.LATEST_TIERED, {ORDERS: 7}),
        9,
        "ffffffff0002076f7264657273020000000300000007fffffffffffffffb000000",
    ),
    (DescribeConfigs([Resource(ResourceType.TOPIC, "orders")]), 4, "0202076f72646572730000000000"),
    (DescribeLogDirs({"orders": [3, 4]}), 4, "02076f72646572730300000003000000040000"),
    (
        IncrementalAlterConfigs(Resource(ResourceType.BROKER, "1"), {"a": "5", "b": None}, only_validate=True),
        1,
        "02040231030261000235000262010000000100",
    ),
    (DescribeProducers("orders", 3), 0, "02076f726465727302000000030000"),
    (ListTransactions([5, -1]), 0, "01030000000000000005ffffffffffffffff00"),
    (DescribeTransactions(["tx"]), 0, "0203747800"),
    (
        FETCH,
        18,
        (
            "000001f400000001008000000000000000ffffffff02000102030405060708090a0b0c0d0e0f0200000003000000070000011f71fb"
            "04cbffffffffffffffffffffffff008000000000010100"
        ),
    ),
    (
        OffsetForLeaderEpoch(ORDERS, current_leader_epoch=7, leader_epoch=5),
        4,
        "ffffffff02076f726465727302000000030000000700000005000000",
    ),
    (SaslHandshake("PLAIN"), 1, "0005504c41494e"),
    (SaslAuthenticate(b"token"), 2, "06746f6b656e00"),
]

ANSWERS: Final[list[tuple[Request[Any], str, Any]]] = [
    (
        ApiVersions(),
        (
            "00000200030000000d000000000003001702116d657461646174612e76657273696f6e0001001e000108000000000000000502"
            "1702116d657461646174612e76657273696f6e001d001d00"
        ),
        ApiVersionsAnswer(0, {3: (0, 13)}, {"metadata.version": 30}, {"metadata.version": 29}),
    ),
    (
        Metadata(names=["orders"]),
        (
            "0000000103000000010261000023840272000000000202620000238500000463696400000001020000076f72646572730001020304"
            "05060708090a0b0c0d0e0f000200000000000000000002000000050300000001000000020200000002020000000100800000000000"
        ),
        MetadataAnswer(
            (BrokerAddress(1, "a", 9092, "r"), BrokerAddress(2, "b", 9093, None)),
            "cid",
            (MetadataResponseTopic(0, "orders", ID, (MetadataResponsePartition(0, 0, 2, 5, (1, 2), (2,)),)),),
        ),
    ),
    (
        ListOffsets(OffsetSpec.LATEST_TIERED, {ORDERS: 7}),
        (
            "0000000002076f726465727303000000030000ffffffffffffffff0000001cbe991a140000000700000000040006ffffffffffffff"
            "ffffffffffffffffffffffffff000000"
        ),
        {ORDERS: FoundOffset(0, 123456789012, 7), TopicPartition("orders", 4): FoundOffset(6, -1)},
    ),
    (
        DescribeConfigs([Resource(ResourceType.TOPIC, "orders")]),
        (
            "000000000200000002076f7264657273030d726574656e74696f6e2e6d73032d3100010002116c6f672e726574656e74696f6e2e6d"
            "7302350400050000077365637265740001040101010264000000"
        ),
        (
            FoundConfigs(
                0,
                None,
                "orders",
                (FoundConfig("retention.ms", "-1", False, 1), FoundConfig("secret", None, True, 4)),
            ),
        ),
    ),
    (
        DescribeLogDirs({}),
        (
            "000000190000030000062f6461746102076f726465727303000000030000001cbe991a140000000000000000000000000004000000"
            "0000000007000000000000000501000000000000000003e80000000000000384000038062f6c6f737401ffffffffffffffffffffff"
            "ffffffffff0000"
        ),
        LogDirsAnswer(56, [LogSize("orders", 3, 123_456_789_012)], [900]),
    ),
    (
        IncrementalAlterConfigs(Resource(ResourceType.BROKER, "1"), {}),
        "00000000020028036e6f0402310000",
        (AlterAnswer(40, "no"),),
    ),
    (
        DescribeProducers("orders", 3),
        (
            "0000000002076f7264657273020000000300000002000000000000000900000002000000040000018bcfe568000000000100000000"
            "0000004d00000000"
        ),
        [ProducersAnswer(0, None, (ProducerState(9, 2, 1_700_000_000_000, 77),))],
    ),
    (
        ListTransactions([9]),
        "00000000000001020374780000000000000009084f6e676f696e670000",
        ListTransactionsAnswer(0, (ListedTransaction("tx", 9),)),
    ),
    (
        DescribeTransactions(["tx"]),
        (
            "00000000020000037478084f6e676f696e670000ea600000018bcfe568010000000000000009000202076f72646572730200000003"
            "000000"
        ),
        (DescribedTransaction(0, "tx", 60_000, 1_700_000_000_001, 9, 2),),
    ),
    (
        FETCH,
        (
            "0000001900000000000002000102030405060708090a0b0c0d0e0f030000000300000000000000000064000000000000005a000000"
            "0000000005020000000000000009000000000000002800ffffffff0662617463680000000004004affffffffffffffffffffffffff"
            "ffffffffffffffffffffff00ffffffff000101090000000200000008000000"
        ),
        FetchAnswer(
            25,
            0,
            {(ID, 3): FetchedPartition(0, 100, 90, 5, b"batch"), (ID, 4): FetchedPartition(74, -1, -1, -1, b"")},
        ),
    ),
    (
        OffsetForLeaderEpoch(ORDERS, current_leader_epoch=7, leader_epoch=5),
        ("0000001902076f72646572730300000000000300000004000000000000004d00004c00000004ffffffffffffffffffffffff000000"),
        {ORDERS: EpochEnd(0, 4, 77), TopicPartition("orders", 4): EpochEnd(76, -1, -1)},
    ),
    (
        SaslHandshake("PLAIN"),
        "0021000000020005504c41494e000d534352414d2d5348412d323536",
        HandshakeAnswer(33, ("PLAIN", "SCRAM-SHA-256")),
    ),
    (SaslAuthenticate(b""), "003a036e6f0274000000000000000000", AuthenticateAnswer(58, "no", b"t")),
]
_NAMES: Final = [request.name for request, _, _ in ANSWERS]


@pytest.mark.parametrize(("request_", "version", "golden"), REQUESTS)
def test_a_request_is_the_bytes_that_brokers_know(request_: Request[Any], version: int, golden: str) -> None:
    assert (request_.version, request_.body().hex()) == (version, golden)


@pytest.mark.parametrize(("request_", "golden", "value"), ANSWERS, ids=_NAMES)
def test_an_answer_is_read_as_what_it_says(request_: Request[Any], golden: str, value: object) -> None:
    assert request_.answer(Reader(bytes.fromhex(golden))) == value


def test_a_frame_has_size_head_and_body() -> None:
    client = b"kafka-tiering-operations".hex()
    assert (
        frame_request(Metadata(every_topic=True), 5).hex() == f"00000027{'0003000c00000005'}0018{client}00{'00000000'}"
    )
    assert (
        frame_request(SaslHandshake("PLAIN"), 6).hex() == f"00000029{'0011000100000006'}0018{client}{'0005504c41494e'}"
    )


def test_an_answer_to_another_request_is_refused() -> None:
    message = (6).to_bytes(4) + b"\0" + bytes.fromhex(ANSWERS[4][1])
    assert parse_response(ANSWERS[4][0], 6, message, lambda: None) == ANSWERS[4][2]
    with pytest.raises(FormatError, match="the response belongs to request 6, not 5"):
        parse_response(ANSWERS[4][0], 5, message, lambda: None)


def test_a_broker_that_does_not_know_the_version_says_so_in_another_form() -> None:
    assert ApiVersions().answer(Reader(bytes.fromhex("0023000000010012000000000003"))).error == 35


@pytest.mark.parametrize(("request_", "golden", "value"), ANSWERS, ids=_NAMES)
def test_a_cut_answer_is_an_error_or_complete_without_its_end(
    request_: Request[Any], golden: str, value: object
) -> None:
    whole = bytes.fromhex(golden)
    for size in range(len(whole)):
        with suppress(FormatError):
            assert request_.answer(Reader(whole[:size])) == value


@given(data=st.data())
def test_damage_is_a_format_error_or_another_answer(data: st.DataObject) -> None:
    request, golden, _ = data.draw(st.sampled_from(ANSWERS))
    damaged = bytearray(bytes.fromhex(golden))
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        damaged[position] = byte
    answer: Callable[[Reader], object] = request.answer
    with suppress(FormatError):
        answer(Reader(bytes(damaged)))


# `ApiKeys` of Kafka 4.4.0: id, and whether the headers of request and answer are flexible (`requestHeaderVersion` of at
# least 2, `responseHeaderVersion` of at least 1) in the version that is sent.
HEADERS: Final = {
    ("ApiVersions", 3): (18, True, False),
    ("DescribeConfigs", 4): (32, True, True),
    ("DescribeLogDirs", 4): (35, True, True),
    ("DescribeProducers", 0): (61, True, True),
    ("DescribeTransactions", 0): (65, True, True),
    ("IncrementalAlterConfigs", 1): (44, True, True),
    ("OffsetForLeaderEpoch", 4): (23, True, True),
    ("ListTransactions", 0): (66, True, True),
    ("Metadata", 12): (3, True, True),
    ("SaslAuthenticate", 2): (36, True, True),
    ("SaslHandshake", 1): (17, False, False),
}


def test_headers_are_those_of_kafka() -> None:
    sent: list[Any] = [
        request
        for module in (cluster_requests, fetch_requests, partition_requests, login)
        for request in vars(module).values()
        if isinstance(request, type) and hasattr(request, "api_key")
    ]
    found = {
        (request.name, request.version): (request.api_key, request.flexible_request, request.flexible_answer)
        for request in {*sent} - {partition_requests.ListOffsets, Fetch}
    }
    assert found == HEADERS
    # Each version of them that is sent has flexible headers: they begin with version 6, and 12.
    listing = partition_requests.ListOffsets
    assert (listing.api_key, listing.flexible_request, listing.flexible_answer) == (2, True, True)
    assert (Fetch.api_key, Fetch.flexible_request, Fetch.flexible_answer) == (1, True, True)


@pytest.mark.parametrize(
    ("known_there", "chosen"), [((0, 14), 15), ((0, 15), 15), ((4, 17), 17), ((4, 18), 18), ((4, 30), 18)]
)
def test_fetches_have_the_newest_version_that_both_sides_know(known_there: tuple[int, int], chosen: int) -> None:
    """A broker that does not know the chosen one is refused with its name when the request is sent."""
    assert Fetch.newest_version({1: known_there}) == chosen


def test_a_count_that_the_bytes_cannot_hold_is_not_believed() -> None:
    with pytest.raises(FormatError):
        SaslHandshake("PLAIN").answer(Reader(bytes.fromhex("00007fffffff")))
    with pytest.raises(FormatError):
        Metadata().answer(Reader(bytes.fromhex("00000000ffffffff07")))


# Codes of errors compared with Kafka's own list, which this project's table has no part in.
# `tests/data/kafka_error_codes.tsv` is what `org.apache.kafka.common.protocol.Errors` of Kafka 4.4.0 holds.


class KafkaCode(NamedTuple):
    code: int
    name: str
    is_retriable: bool


def _kafkas_list() -> list[KafkaCode]:
    lines = (ROOT / "tests" / "data" / "kafka_error_codes.tsv").read_text().splitlines()
    rows = (line.split("\t") for line in lines)
    return [KafkaCode(int(code), name, retriable == "true") for code, name, retriable in rows]


KAFKAS: Final = {one.name: one for one in _kafkas_list() if one.name != "NONE"}
KINDS: Final[dict[str, type[BrokersError]]] = {
    "UNKNOWN_SERVER_ERROR": BrokersRefusedError,
    "OFFSET_OUT_OF_RANGE": BrokersRefusedError,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopicError,
    "LEADER_NOT_AVAILABLE": BrokersUnavailableError,
    "NOT_LEADER_OR_FOLLOWER": BrokersUnavailableError,
    "REQUEST_TIMED_OUT": BrokersUnavailableError,
    "BROKER_NOT_AVAILABLE": BrokersUnavailableError,
    "REPLICA_NOT_AVAILABLE": BrokersUnavailableError,
    "NETWORK_EXCEPTION": BrokersUnavailableError,
    "COORDINATOR_LOAD_IN_PROGRESS": BrokersUnavailableError,
    "COORDINATOR_NOT_AVAILABLE": BrokersUnavailableError,
    "NOT_COORDINATOR": BrokersUnavailableError,
    "INVALID_TOPIC_EXCEPTION": BrokersRefusedError,
    "TOPIC_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "CLUSTER_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "UNSUPPORTED_SASL_MECHANISM": BrokersLoginError,
    "ILLEGAL_SASL_STATE": BrokersLoginError,
    "UNSUPPORTED_VERSION": BrokersRefusedError,
    "INVALID_CONFIG": BrokersRefusedError,
    "NOT_CONTROLLER": BrokersUnavailableError,
    "INVALID_REQUEST": BrokersRefusedError,
    "POLICY_VIOLATION": BrokersRefusedError,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": BrokersForbiddenError,
    "KAFKA_STORAGE_ERROR": BrokersUnavailableError,
    "SASL_AUTHENTICATION_FAILED": BrokersLoginError,
    "FENCED_LEADER_EPOCH": BrokersUnavailableError,
    "UNKNOWN_LEADER_EPOCH": BrokersUnavailableError,
    "OFFSET_NOT_AVAILABLE": BrokersUnavailableError,
    "THROTTLING_QUOTA_EXCEEDED": BrokersUnavailableError,
    "UNKNOWN_TOPIC_ID": UnknownTopicError,
    "INCONSISTENT_TOPIC_ID": UnknownTopicError,
}
"""What is more than refused, or has words of its own here; every other code is a refusal by its number."""


@pytest.mark.parametrize("kafkas", KAFKAS.values(), ids=lambda one: one.name)
def test_each_code_of_kafka_means_here_what_it_means_there(kafkas: KafkaCode) -> None:
    found = refusal(kafkas.code, "orders-0")
    assert type(found) is KINDS.get(kafkas.name, BrokersRefusedError)
    by_number = f"orders-0: error {kafkas.code} of Kafka's protocol"
    assert (str(found) == by_number) is (kafkas.name not in KINDS)


def test_codes_with_a_name_here_are_kafkas() -> None:
    assert KAFKAS["UNKNOWN_TOPIC_OR_PARTITION"].code == UNKNOWN_TOPIC_OR_PARTITION
    assert KAFKAS["UNKNOWN_TOPIC_ID"].code == UNKNOWN_TOPIC_ID


def test_what_is_tried_again_here_kafkas_clients_try_again() -> None:
    """But for a broker that is gone, which Kafka's clients learn of otherwise."""
    again = {one.name for one in KAFKAS.values() if refusal(one.code, "").retriable}
    assert again == {name for name, kind in KINDS.items() if kind is BrokersUnavailableError}
    assert {name for name in again if not KAFKAS[name].is_retriable} == {"BROKER_NOT_AVAILABLE"}


def test_a_code_that_kafka_does_not_have_yet_is_refused_by_its_number() -> None:
    newest = max(one.code for one in KAFKAS.values())
    assert (type(refusal(newest + 1, "x")), str(refusal(newest + 1, "x"))) == (
        BrokersRefusedError,
        f"x: error {newest + 1} of Kafka's protocol",
    )


def test_the_brokers_own_words_are_added_without_what_a_terminal_would_obey() -> None:
    assert str(refusal(44, "orders", "no \x1b[2J")) == r"orders: refused by a policy of the cluster (no \x1b[2J)"
    assert str(refusal(44, "orders", "")) == "orders: refused by a policy of the cluster"


# Coordinators that do not answer as they should.


class Coordinators(Partial):
    """Brokers that answer with what a test says; broker 0 leads the partition."""

    def __init__(self, listed: ListTransactionsAnswer, *described: DescribedTransaction) -> None:
        self.listed, self.described = listed, described

    def send(self, broker_id: int, request: Any) -> Any:
        if isinstance(request, DescribeProducers):
            return [ProducersAnswer(0, None, (ProducerState(7, 0, 10, 5),))]
        return self.listed if isinstance(request, ListTransactions) else self.described


@pytest.mark.parametrize(
    ("listed", "described", "says"),
    [
        (ListTransactionsAnswer(14, ()), (), "transactions that broker 1 coordinates are unknown"),
        (
            ListTransactionsAnswer(0, (ListedTransaction("t", 7),)),
            (DescribedTransaction(16, "t", 0, 0, 7, 0),),
            "transaction t: not the coordinator any more",
        ),
    ],
)
def test_a_coordinator_that_answers_with_an_error_is_named(
    listed: ListTransactionsAnswer, described: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a transaction of a coordinator that is loading passes for one that has no coordinator."""
    caplog.set_level(logging.INFO, logger="include.tiering")
    (found,) = open_transactions(Coordinators(listed, *described), partition_of("orders"), 0, [1])
    assert found.transactional_id is None
    assert says in caplog.text


_OF_ORDERS: Final = "0000000000000000000200000005030000000100000002020000000201{tags}"
TWO_TOPICS: Final = "".join(
    (
        "000000010300000001026100002384027200000000020262000023850000046369640000000103",
        f"0000076f7264657273000102030405060708090a0b0c0d0e0f0003{_OF_ORDERS}{_OF_ORDERS}80000000{{tags}}",
        "000006736d616c6c000102030405060708090a0b0c0d0e0f000180000000{tags}00",
    )
)


@pytest.mark.parametrize("tags", ["00", "01050301ff02"], ids=["without", "with"])
def test_every_item_of_metadata_ends_with_its_tagged_fields(tags: str) -> None:
    """What a newer broker adds to a topic or a partition is passed over, and the item after it is read."""
    partition = MetadataResponsePartition(0, 0, 2, 5, (1, 2), (2,))
    answer = Metadata().answer(Reader(bytes.fromhex(TWO_TOPICS.replace("{tags}", tags))))
    assert answer.topics == (
        MetadataResponseTopic(0, "orders", ID, (partition, partition)),
        MetadataResponseTopic(0, "small", ID, ()),
    )
    assert [broker.broker_id for broker in answer.brokers] == [1, 2]
