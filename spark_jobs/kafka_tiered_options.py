"""Options of `kafka-tiered`, with the names and values of Spark's Kafka source, and filters that it can use.

`read_options` accepts what the table in docs/spark-source.md says, and refuses everything else in a sentence.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from include.tiering.configs.config_store import EntityType
from include.tiering.configs.rules import checked_entity
from include.tiering.errors import SettingError, printable
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import NAMELESS_CLIENT
from include.tiering.reading.plan_scan import (
    ALL_OFFSETS,
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    PartitionScan,
    ScanRequest,
)

OPTIONS: Final = (
    "assign",
    "config",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "kafka.client.id",
    "kafka.isolation.level",
    "minPartitions",
    "pushFilters",
    "startingOffsets",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    "topicId",
)
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ISOLATION: Final = {"read_uncommitted": False, "read_committed": True}
_BOOLEANS: Final = {"true": True, "false": False}
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NUMBERS: Final = {-2: EARLIEST, -1: LATEST}
_MAX_LONG: Final = 2**63 - 1
_T = TypeVar("_T")

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the options of a read say.

    Attributes:
        config: path of the settings file; None: `TIERING_CONFIG`, or variables only.
        accepts: whether a partition is subscribed.
        named: what must have data in remote storage: the topics of `subscribe`, or the partitions of `assign`; empty
            with `subscribePattern`.
        topic_id: of the topics of the same name, only the one with this id is read.
        starts: by partition; None: `start` is for all of them.
        ends: by partition; None: `end` is for all of them.
        client: the client whose fetch quota applies.
    """

    config: str | None
    accepts: Callable[[TopicPartition], bool]
    named: tuple[str | TopicPartition, ...]
    topic_id: str | None
    start: Bound
    end: Bound
    starts: Mapping[TopicPartition, Bound] | None
    ends: Mapping[TopicPartition, Bound] | None
    committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    push_filters: bool
    min_partitions: int | None
    client: str


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check and parse the options; names are compared without case, as Spark does.

    Raises:
        SettingError: an option is unknown, has a value that is not accepted, or does not go with another one.
    """
    options = _by_name(given)
    accepts, named = _subscription(options)
    start, starts = _bound(options, "startingOffsets", "startingTimestamp", EARLIEST)
    end, ends = _bound(options, "endingOffsets", "endingTimestamp", LATEST)
    _require_order(start, end)
    return ReadOptions(
        config=options.get("config"),
        accepts=accepts,
        named=named,
        topic_id=options.get("topicId"),
        start=start,
        end=end,
        starts=starts,
        ends=ends,
        committed=_one_of(options, "kafka.isolation.level", _ISOLATION, "read_uncommitted"),
        fail_on_data_loss=_one_of(options, "failOnDataLoss", _BOOLEANS, "true"),
        include_headers=_one_of(options, "includeHeaders", _BOOLEANS, "false"),
        push_filters=_one_of(options, "pushFilters", _BOOLEANS, "false"),
        min_partitions=_whole(options, "minPartitions", 1, 100_000) if "minPartitions" in options else None,
        client=_client(options),
    )


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in OPTIONS}
    unknown = sorted(name for name in given if name.lower() not in names)
    if unknown:
        raise SettingError(
            f"{printable(unknown[0])} is no option of kafka-tiered, which reads remote storage and asks no broker: "
            f"possible are {', '.join(OPTIONS)}"
        )
    return {names[name.lower()]: text for name, text in given.items()}


def _subscription(
    options: Mapping[str, str],
) -> tuple[Callable[[TopicPartition], bool], tuple[str | TopicPartition, ...]]:
    given = [name for name in _SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        raise SettingError(
            f"exactly one of {', '.join(_SUBSCRIPTIONS)} is possible, not {' and '.join(given) or 'none'}"
        )
    text = options[given[0]]
    if given[0] == "subscribePattern":
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise SettingError(f"subscribePattern {printable(text)!r} is no regular expression: {error}") from None
        return lambda each: pattern.fullmatch(each[0]) is not None, ()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise SettingError("subscribe names no topic: possible are names with commas between them")
        return lambda each: each[0] in topics, topics
    assigned = frozenset(_by_partition("assign", text, '{"orders": [0, 1]}', _numbers_of))
    return lambda each: each in assigned, tuple(sorted(assigned))


def _numbers_of(partitions: Any) -> Mapping[Any, Any] | None:
    return dict.fromkeys(map(str, partitions)) if isinstance(partitions, list) else None


def _offsets_of(partitions: Any) -> Mapping[Any, Any] | None:
    return partitions if isinstance(partitions, dict) else None


def _by_partition(
    name: str, text: str, example: str, read: Callable[[Any], Mapping[Any, Any] | None]
) -> dict[TopicPartition, Any]:
    """Parse a JSON object of topics."""
    refused = SettingError(f"{name} {printable(text)!r} is not JSON such as {example}")
    try:
        topics = json.loads(text)
    except ValueError:
        raise refused from None
    if not isinstance(topics, dict) or not topics:
        raise refused
    found: dict[TopicPartition, Any] = {}
    for topic, partitions in topics.items():
        values = read(partitions)
        if not values or not all(re.fullmatch("[0-9]{1,9}", number) for number in values):
            raise refused
        found.update({(topic, int(number)): value for number, value in values.items()})
    return found


def _bound(
    options: Mapping[str, str], offsets: str, timestamp: str, default: Bound
) -> tuple[Bound, Mapping[TopicPartition, Bound] | None]:
    if offsets in options and timestamp in options:
        raise SettingError(f"{offsets} and {timestamp} do not go together: possible is one of them")
    if timestamp in options:
        return Bound(BoundKind.TIMESTAMP, _whole(options, timestamp, 0, _MAX_LONG, "milliseconds since 1970")), None
    text = options.get(offsets)
    if text is None:
        return default, None
    example = json.dumps({"orders": {"0": 23, "1": -2 if default is EARLIEST else -1}})
    if not text.strip().startswith("{"):
        word = text.strip().lower()
        if _WORDS.get(word) is not default:
            raise SettingError(
                f"{offsets} {printable(text)!r} is not possible for a batch read: possible are "
                f"{default.kind} and JSON such as {example}"
            )
        return default, None
    bounds = _by_partition(offsets, text, example, _offsets_of)
    return default, {partition: _offset(offsets, partition, value, default) for partition, value in bounds.items()}


def _offset(name: str, partition: TopicPartition, value: Any, default: Bound) -> Bound:
    number = -2 if default is EARLIEST else -1
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= _MAX_LONG:
            return Bound(BoundKind.OFFSET, value)
        if _NUMBERS.get(value) is default:
            return default
    raise SettingError(
        f"{name} of {partition[0]}-{partition[1]} is {value!r}: possible are an offset, and {number} for {default.kind}"
    )


def _require_order(start: Bound, end: Bound) -> None:
    if start.kind is end.kind is BoundKind.TIMESTAMP and start.value > end.value:
        raise SettingError(f"startingTimestamp {start.value} is above endingTimestamp {end.value}")


def _one_of(options: Mapping[str, str], name: str, values: Mapping[str, _T], default: str) -> _T:
    text = options.get(name, default).strip().lower()
    if text not in values:
        raise SettingError(f"{name} {printable(options[name])!r} is not possible: possible are {', '.join(values)}")
    return values[text]


def _client(options: Mapping[str, str]) -> str:
    text = options.get("kafka.client.id")
    if text is None:
        return NAMELESS_CLIENT
    try:
        checked_entity(EntityType.CLIENTS, text)
    except SettingError as error:
        raise SettingError(f"kafka.client.id: {error}") from None
    return text


def _whole(options: Mapping[str, str], name: str, least: int, most: int, what: str = "a whole number") -> int:
    text = options[name].strip()
    if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise SettingError(f"{name} {printable(options[name])!r} is not possible: possible are {what}, {least}..{most}")
    return int(text)


def scan_request(options: ReadOptions, remote: Iterable[TopicIdPartition], pushed: "PushedFilters") -> ScanRequest:
    """Return what to read of the partitions that are in remote storage.

    Raises:
        SettingError: a topic or partition that is named has no data there, several topics have its name, offsets are
            not given for exactly the partitions that are read, or a start offset is above the end offset.
    """
    subscribed = [each for each in remote if options.accepts((each.topic, each.partition))]
    chosen = {
        (each.topic, each.partition): each for each in subscribed if options.topic_id in (None, str(each.topic_id))
    }
    _require_one_topic(options, subscribed)
    _require_named(options, chosen)
    starts = _for_all("startingOffsets", options.starts, options.start, chosen)
    ends = _for_all("endingOffsets", options.ends, options.end, chosen)
    for key in chosen:
        if starts[key].kind is ends[key].kind is BoundKind.OFFSET and starts[key].value > ends[key].value:
            raise SettingError(
                f"startingOffsets of {key[0]}-{key[1]} is {starts[key].value}, above endingOffsets, {ends[key].value}"
            )
    return ScanRequest(
        tuple(PartitionScan(each, starts[key], ends[key]) for key, each in sorted(chosen.items()) if pushed.wants(key)),
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        min_tasks=options.min_partitions,
        offsets=pushed.offsets,
        min_timestamp_ms=pushed.min_timestamp_ms,
    )


def _require_one_topic(options: ReadOptions, subscribed: Sequence[TopicIdPartition]) -> None:
    ids: dict[str, set[str]] = {}
    for each in subscribed:
        if options.topic_id in (None, str(each.topic_id)):
            ids.setdefault(each.topic, set()).add(str(each.topic_id))
    for topic, found in ids.items():
        if len(found) > 1:
            raise SettingError(f"topics with the name {topic} have the ids {', '.join(sorted(found))}: set topicId")


def _require_named(options: ReadOptions, chosen: Mapping[TopicPartition, TopicIdPartition]) -> None:
    topics = {topic for topic, _ in chosen}
    for each in options.named:
        if each not in (topics if isinstance(each, str) else chosen):
            name = each if isinstance(each, str) else f"{each[0]}-{each[1]}"
            raise SettingError(
                f"{printable(name)}: nothing of it is in remote storage; ./tiering sizes lists what is there"
            )


def _for_all(
    name: str,
    bounds: Mapping[TopicPartition, Bound] | None,
    bound: Bound,
    chosen: Mapping[TopicPartition, TopicIdPartition],
) -> Mapping[TopicPartition, Bound]:
    if bounds is None:
        return dict.fromkeys(chosen, bound)
    for topic, partition in chosen:
        if (topic, partition) not in bounds:
            number = -2 if bound is EARLIEST else -1
            raise SettingError(
                f"{name} has no offset of {topic}-{partition}: name all that are read, {number} is {bound.kind}"
            )
    for topic, partition in bounds:
        if (topic, partition) not in chosen:
            raise SettingError(f"{name} has an offset of {printable(topic)}-{partition}, which is not read")
    return bounds


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What the filters of a query leave to be read. Spark evaluates the filters again over what was read.

    Attributes:
        about_partitions: filters of the topic or the partition; all must hold.
        offsets: no others are wanted.
        min_timestamp_ms: nothing older is wanted.
    """

    about_partitions: tuple[Filter, ...] = ()
    offsets: OffsetRange = ALL_OFFSETS
    min_timestamp_ms: int | None = None

    def wants(self, partition: TopicPartition) -> bool:
        """Return whether records of the partition may be wanted."""
        values: dict[tuple[str, ...], str | int] = {("topic",): partition[0], ("partition",): partition[1]}
        return all(_holds(each, values) for each in self.about_partitions)


_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: lambda value, values: value in values,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def _holds(each: Any, values: Mapping[tuple[str, ...], Any]) -> bool:
    return _COMPARISONS[type(each)](values[each.attribute], each.value)


def pushed_filters(filters: Iterable[Any]) -> PushedFilters:
    """Combine those filters that say what need not be read; the others are ignored."""
    pushed = PushedFilters()
    for each in filters:
        if type(each) not in _COMPARISONS:
            continue
        match each.attribute:
            case ("topic",) | ("partition",):
                pushed = replace(pushed, about_partitions=(*pushed.about_partitions, each))
            case ("offset",):
                first, last = _offsets_that_hold(each)
                first, last = max(first, pushed.offsets.first), min(last, pushed.offsets.last)
                pushed = replace(pushed, offsets=OffsetRange(first, last))
            case ("timestamp",) if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                least_ms = _ms_of(each.value)
                if pushed.min_timestamp_ms is not None:
                    least_ms = max(least_ms, pushed.min_timestamp_ms)
                pushed = replace(pushed, min_timestamp_ms=least_ms)
    return pushed


def _offsets_that_hold(each: Any) -> OffsetRange:
    """Return a range that has all offsets for which the filter holds."""
    least, most = ALL_OFFSETS
    match each:
        case EqualTo():
            return OffsetRange(each.value, each.value)
        case In():
            # A null among the values is equal to no offset.
            values = [value for value in each.value if value is not None]
            return OffsetRange(min(values, default=most), max(values, default=least))
        case GreaterThan():
            return OffsetRange(each.value + 1, most)
        case GreaterThanOrEqual():
            return OffsetRange(each.value, most)
        case LessThan():
            return OffsetRange(least, each.value - 1)
        case _:
            return OffsetRange(least, each.value)


def _ms_of(value: datetime) -> int:
    """Return the milliseconds since 1970 of a literal, rounded down. Spark gives a TIMESTAMP with a time zone."""
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
