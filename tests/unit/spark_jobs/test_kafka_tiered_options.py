"""Options of the data source, and filters that it uses."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from include.tiering.errors import SettingError
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import TopicIdPartition
from include.tiering.reading.plan_scan import ALL_OFFSETS, EARLIEST, LATEST, Bound, BoundKind, ScanRequest
from spark_jobs.kafka_tiered_options import OPTIONS, PushedFilters, pushed_filters, read_options, scan_request
from tests.doubles.segments import partition_of

REMOTE = (partition_of("orders", 0), partition_of("orders", 1), partition_of("order-lines", 0))
ORDERS = {"subscribe": "orders"}


def request(remote: tuple[TopicIdPartition, ...] = REMOTE, /, **options: str) -> ScanRequest:
    named = {name.replace("_", "."): text for name, text in options.items()}
    return scan_request(read_options(named), remote, PushedFilters())


def read_by(**options: str) -> list[str]:
    return [str(each.partition) for each in request(**options).partitions]


def test_defaults() -> None:
    found = request(**ORDERS)
    assert [(str(each.partition), each.start, each.end) for each in found.partitions] == [
        ("orders-0", EARLIEST, LATEST),
        ("orders-1", EARLIEST, LATEST),
    ]
    assert (found.committed, found.fail_on_data_loss, found.min_tasks) == (False, True, None)
    assert not read_options(ORDERS).include_headers


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({"subscribe": "order-lines"}, ["order-lines-0"]),
        ({"subscribe": " orders , order-lines"}, ["order-lines-0", "orders-0", "orders-1"]),
        ({"subscribePattern": "order.*"}, ["order-lines-0", "orders-0", "orders-1"]),
        ({"subscribePattern": "order"}, []),
        ({"assign": '{"orders": [1]}'}, ["orders-1"]),
        ({"SUBSCRIBE": "orders", "MinPartitions": "3"}, ["orders-0", "orders-1"]),
    ],
)
def test_what_is_subscribed(options: dict[str, str], partitions: list[str]) -> None:
    assert read_by(**options) == partitions


def test_bounds_by_partition() -> None:
    offsets = '{"orders": {"0": 23, "1": -2}}'
    ends = '{"orders": {"0": -1, "1": 40}}'
    found = request(**ORDERS, startingOffsets=offsets, endingOffsets=ends)
    assert [(each.start, each.end) for each in found.partitions] == [
        (Bound(BoundKind.OFFSET, 23), LATEST),
        (EARLIEST, Bound(BoundKind.OFFSET, 40)),
    ]


def test_bounds_by_timestamp() -> None:
    found = request(**ORDERS, startingTimestamp="1000", endingTimestamp="2000")
    assert {(each.start, each.end) for each in found.partitions} == {
        (Bound(BoundKind.TIMESTAMP, 1000), Bound(BoundKind.TIMESTAMP, 2000))
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one of assign, subscribe, subscribePattern"),
        ({"subscribe": "orders", "assign": '{"orders": [0]}'}, "not assign and subscribe"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": "orders"}, "is not JSON such as"),
        ({"assign": '{"orders": {"0": 1}}'}, "is not JSON such as"),
        ({"assign": '{"orders": ["x"]}'}, "is not JSON such as"),
        ({**ORDERS, "kafka.bootstrap.servers": "b:9092"}, ", ".join(OPTIONS)),
        ({**ORDERS, "startingOffsets": "latest"}, "not possible for a batch read"),
        ({**ORDERS, "endingOffsets": "earliest"}, "not possible for a batch read"),
        ({**ORDERS, "startingOffsets": "5"}, "not possible for a batch read"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -1}}'}, "-2 for earliest"),
        ({**ORDERS, "endingOffsets": '{"orders": {"0": -2}}'}, "-1 for latest"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": true}}'}, "-2 for earliest"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": 1}'}, "is not JSON such as"),
        ({**ORDERS, "startingOffsets": "earliest", "startingTimestamp": "1"}, "do not go together"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**ORDERS, "startingTimestamp": "2", "endingTimestamp": "1"}, "is above endingTimestamp"),
        ({**ORDERS, "minPartitions": "0"}, "1..100000"),
        ({**ORDERS, "failOnDataLoss": "maybe"}, "possible are true, false"),
        ({**ORDERS, "kafka.client.id": ""}, "kafka.client.id"),
        ({**ORDERS, "kafka.client.id": "reports\n"}, "kafka.client.id"),
        ({**ORDERS, "kafka.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
    ],
)
def test_what_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_options(options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "orders,absent"}, "absent: nothing of it is in remote storage"),
        ({"assign": '{"orders": [0, 7]}'}, "orders-7: nothing of it is in remote storage"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": 1}}'}, "no offset of orders-1"),
        ({**ORDERS, "endingOffsets": '{"orders": {"0": 1, "1": 2, "2": 3}}'}, "orders-2, which is not read"),
        (
            {
                "assign": '{"orders": [0]}',
                "startingOffsets": '{"orders": {"0": 5}}',
                "endingOffsets": '{"orders": {"0": 4}}',
            },
            "above endingOffsets, 4",
        ),
    ],
)
def test_what_is_refused_by_what_is_there(options: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        request(**options)
    assert said in str(refused.value)


def test_of_topics_with_one_name_the_id_chooses() -> None:
    old, new = partition_of(topic_number=1), partition_of(topic_number=2)
    with pytest.raises(SettingError, match="set topicId"):
        request((old, new), **ORDERS)
    (found,) = request((old, new), **ORDERS, topicId=str(new.topic_id)).partitions
    assert found.partition == new


def test_partitions_that_filters_leave() -> None:
    def left(*filters: Filter) -> list[str]:
        found = scan_request(read_options({"subscribePattern": ".*"}), REMOTE, pushed_filters(filters))
        return [str(each.partition) for each in found.partitions]

    assert left(EqualTo(("partition",), 1)) == ["orders-1"]
    assert left(GreaterThan(("partition",), 0)) == ["orders-1"]
    assert left(LessThanOrEqual(("partition",), 0)) == ["order-lines-0", "orders-0"]
    assert left(In(("topic",), ("orders",)), LessThan(("partition",), 1)) == ["orders-0"]
    assert left(Not(EqualTo(("partition",), 1))) == ["order-lines-0", "orders-0", "orders-1"]
    assert left(IsNotNull(("partition",)), EqualTo(("value",), b"x")) == ["order-lines-0", "orders-0", "orders-1"]


@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        ([], ALL_OFFSETS),
        ([EqualTo(("offset",), 5)], (5, 5)),
        ([GreaterThan(("offset",), 5), LessThan(("offset",), 9)], (6, 8)),
        ([GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)], (5, 9)),
        ([In(("offset",), (7, 3, 5)), GreaterThan(("offset",), 4)], (5, 7)),
        ([In(("offset",), (7, None, 5))], (5, 7)),
        ([In(("offset",), (None,))], (2**63 - 1, 0)),
        ([EqualTo(("offset",), 5), EqualTo(("offset",), 6)], (6, 5)),
    ],
)
def test_offsets_that_filters_leave(filters: list[Filter], offsets: OffsetRange) -> None:
    assert pushed_filters(filters).offsets == offsets


def test_the_oldest_record_that_filters_leave() -> None:
    at = datetime(2024, 1, 1, 12, 0, 0, 1_999, tzinfo=UTC)
    ms = 1_704_110_400_001
    for each in (EqualTo(("timestamp",), at), GreaterThan(("timestamp",), at), GreaterThanOrEqual(("timestamp",), at)):
        assert pushed_filters([each]).min_timestamp_ms == ms
    assert pushed_filters([LessThan(("timestamp",), at)]).min_timestamp_ms is None
    # Records without a timestamp have that of one millisecond before 1970.
    early = GreaterThanOrEqual(("timestamp",), datetime(1969, 1, 1, tzinfo=UTC))
    assert pushed_filters([early]).min_timestamp_ms == -31_536_000_000
    later = GreaterThan(("timestamp",), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert pushed_filters([early, later, early]).min_timestamp_ms == -1_000
