"""Requests about a cluster: API versions, brokers and topics, sizes of logs, and configs of topics and brokers.

ApiVersions 3: software name, software version string | tags
    -> error int16 | apis: (key, least, greatest version int16 | tags) | throttle ms int32 | tags:
       0 supported features: (name string | least, greatest level int16 | tags)
       2 finalized features: (name string | greatest, least level int16 | tags)
Metadata 12: topics, null for all: (topic id uuid | name nullable string | tags) | may create, with operations boolean |
       tags
    -> throttle ms int32 | brokers: (id int32 | host string | port int32 | rack nullable string | tags) |
       cluster id nullable string | controller int32 | topics: (error int16 | name nullable string | topic id uuid |
       is internal boolean | partitions: (error int16 | partition, leader, leader epoch int32 | replicas, isr, offline
       int32 arrays | tags) | operations int32 | tags) | tags
DescribeLogDirs 4: topics nullable array: (name string | partitions int32 array | tags) | tags
    -> throttle ms int32 | error int16 | log dirs: (error int16 | path string | topics: (name string | partitions:
       (partition int32 | size, offset lag int64 | is future boolean | tags) | tags) | total, usable bytes int64 | tags)
       | tags
DescribeConfigs 4: resources: (type int8 | name string | keys nullable string array | tags) | with synonyms, with
       documentation boolean | tags
    -> throttle ms int32 | results: (error int16 | message nullable string | type int8 | name string | configs: (name
       string | value nullable string | read only boolean | source int8 | sensitive boolean | synonyms: (name string |
       value nullable string | source int8 | tags) | type int8 | documentation nullable string | tags) | tags) | tags
IncrementalAlterConfigs 1: resources: (type int8 | name string | configs: (name string | operation int8, 0 set, 1 delete
       | value nullable string | tags) | tags) | only validate boolean | tags
    -> throttle ms int32 | results: (error int16 | message nullable string | type int8 | name string | tags) | tags
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from include.tiering.formats.cluster_metadata import ResourceType
from include.tiering.formats.primitive_types import Reader, Tags, Writer
from include.tiering.kafka.protocol.messages import (
    read_boolean,
    read_int16,
    read_int32s,
    read_text,
    write_boolean,
    write_text,
)
from include.tiering.model.segments import Uuid

_NO_ID: Final = Uuid(bytes(16))
_SUPPORTED_FEATURES: Final = 0
_FINALIZED_FEATURES: Final = 2
_SOFTWARE: Final = ("kafka-tiering-operations", "1")


@dataclass(frozen=True, slots=True)
class ApiVersionsAnswer:
    """The response to ApiVersions. `apis` has the lowest and the highest version, both inclusive, by API key."""

    error: int
    apis: Mapping[int, tuple[int, int]]
    supported_features: Mapping[str, int]
    finalized_features: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ApiVersions:
    name: ClassVar[str] = "ApiVersions"
    api_key: ClassVar[int] = 18
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = False
    has_throttle_time: ClassVar[bool] = False
    version: ClassVar[int] = 3

    def body(self) -> bytes:
        writer = Writer()
        for text in _SOFTWARE:
            writer.string(text)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> ApiVersionsAnswer:
        """Parse the response. A broker without this version sends another form, of which only the error is read."""
        error = read_int16(reader)
        if error:
            return ApiVersionsAnswer(error, {}, {}, {})
        apis = dict(reader.array(_api, "APIs"))
        reader.int32()
        tags = reader.tags()
        return ApiVersionsAnswer(
            error,
            apis,
            _features(tags, _SUPPORTED_FEATURES),
            _features(tags, _FINALIZED_FEATURES),
        )


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class MetadataResponsePartition:
    error: int
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponseTopic:
    """A topic of the response. `name` may be None if the request has its id."""

    error: int
    name: str | None
    topic_id: Uuid
    partitions: tuple[MetadataResponsePartition, ...]


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    brokers: tuple[BrokerAddress, ...]
    cluster_id: str | None
    topics: tuple[MetadataResponseTopic, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Request metadata of the brokers and of topics by name or id; `every_topic` requests all topics."""

    name: ClassVar[str] = "Metadata"
    api_key: ClassVar[int] = 3
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 12

    names: Sequence[str] = ()
    topic_ids: Sequence[Uuid] = ()
    every_topic: bool = False

    def body(self) -> bytes:
        writer = Writer()
        if self.every_topic:
            writer.uvarint(0)
        else:
            by_name = [(_NO_ID, name) for name in self.names]
            writer.array(_write_topic, [*by_name, *((topic_id, None) for topic_id in self.topic_ids)])
        write_boolean(writer, False)
        write_boolean(writer, False)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> MetadataAnswer:
        reader.int32()
        brokers = reader.array(_broker, "brokers")
        cluster_id = read_text(reader, "cluster id")
        reader.int32()
        return MetadataAnswer(brokers, cluster_id, reader.array(_topic, "topics"))


def _api(reader: Reader) -> tuple[int, tuple[int, int]]:
    found = read_int16(reader), (read_int16(reader), read_int16(reader))
    reader.tags()
    return found


def _features(tags: Tags, wanted: int) -> dict[str, int]:
    """Return the highest level by feature name; empty if the tag is missing."""
    value = next((tag.value for tag in tags if tag.tag == wanted), None)
    return {} if value is None else dict(Reader(value).array(_feature, "features"))


def _feature(reader: Reader) -> tuple[str, int]:
    found = reader.string("feature"), max(read_int16(reader), read_int16(reader))
    reader.tags()
    return found


def _write_topic(writer: Writer, topic: tuple[Uuid, str | None]) -> None:
    topic_id, name = topic
    writer.uuid(topic_id)
    write_text(writer, name)
    writer.tags(())


def _broker(reader: Reader) -> BrokerAddress:
    broker = BrokerAddress(reader.int32(), reader.string("host"), reader.int32(), read_text(reader, "rack"))
    reader.tags()
    return broker


def _topic(reader: Reader) -> MetadataResponseTopic:
    error, name, topic_id = read_int16(reader), read_text(reader, "topic"), reader.uuid()
    read_boolean(reader)
    partitions = reader.array(_partition, "partitions")
    reader.int32()
    reader.tags()
    return MetadataResponseTopic(error, name, topic_id, partitions)


def _partition(reader: Reader) -> MetadataResponsePartition:
    error, partition, leader, leader_epoch = read_int16(reader), reader.int32(), reader.int32(), reader.int32()
    replicas, isr = read_int32s(reader, "replicas"), read_int32s(reader, "in-sync replicas")
    read_int32s(reader, "offline replicas")
    reader.tags()
    return MetadataResponsePartition(error, partition, leader, leader_epoch, replicas, isr)


class LogSize(NamedTuple):
    """The bytes of a replica's log on the broker that answers."""

    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogDirsAnswer:
    """The response to DescribeLogDirs.

    `error` is that of the whole request or, if it has none, that of the first log directory with an error; 0 without
    any. `free_bytes` has a number for each log directory that has no error and whose free bytes the broker tells.
    """

    error: int
    sizes: Sequence[LogSize]
    free_bytes: Sequence[int]


@dataclass(frozen=True, slots=True)
class DescribeLogDirs:
    """Request the sizes of a broker's replicas, without replicas that are still being moved into a log directory."""

    name: ClassVar[str] = "DescribeLogDirs"
    api_key: ClassVar[int] = 35
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 4

    partitions: Mapping[str, Sequence[int]]

    def body(self) -> bytes:
        writer = Writer()
        writer.array(_write_partitions, list(self.partitions.items()))
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> LogDirsAnswer:
        reader.int32()
        error = read_int16(reader)
        log_dirs = reader.array(_log_dir, "log dirs")
        errors = [error, *(of_dir for of_dir, _, _ in log_dirs)]
        sizes = [size for _, sizes, _ in log_dirs for size in sizes]
        free = [free_bytes for of_dir, _, free_bytes in log_dirs if not of_dir and free_bytes >= 0]
        return LogDirsAnswer(next(filter(None, errors), 0), sizes, free)


def _write_partitions(writer: Writer, topic: tuple[str, Sequence[int]]) -> None:
    name, partitions = topic
    writer.string(name)
    writer.array(Writer.int32, partitions)
    writer.tags(())


def _log_dir(reader: Reader) -> tuple[int, list[LogSize], int]:
    error = read_int16(reader)
    reader.string("path")
    topics = reader.array(_topic_sizes, "topics")
    reader.int64()
    free_bytes = reader.int64()
    reader.tags()
    return error, [LogSize(name, *found) for name, sizes in topics for found in sizes if found is not None], free_bytes


def _topic_sizes(reader: Reader) -> tuple[str, tuple[tuple[int, int] | None, ...]]:
    found = reader.string("topic"), reader.array(_partition_size, "partitions")
    reader.tags()
    return found


def _partition_size(reader: Reader) -> tuple[int, int] | None:
    partition, size_bytes = reader.int32(), reader.int64()
    reader.int64()
    is_future = read_boolean(reader)
    reader.tags()
    return None if is_future else (partition, size_bytes)


_SET: Final = 0
_DELETE: Final = 1


class Resource(NamedTuple):
    """A topic or a broker. The name of a broker is its id as text, or empty for the default of all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class FoundConfig:
    """A config of the response. `value` is None if it is null or sensitive; `source` is Kafka's ConfigSource id."""

    name: str
    value: str | None
    read_only: bool
    source: int


@dataclass(frozen=True, slots=True)
class FoundConfigs:
    error: int
    message: str | None
    name: str
    configs: tuple[FoundConfig, ...]


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    name: ClassVar[str] = "DescribeConfigs"
    api_key: ClassVar[int] = 32
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 4

    resources: Sequence[Resource]

    def body(self) -> bytes:
        writer = Writer()
        writer.array(_write_resource, self.resources)
        write_boolean(writer, False)
        write_boolean(writer, False)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Sequence[FoundConfigs]:
        reader.int32()
        return reader.array(_configs, "results")


@dataclass(frozen=True, slots=True)
class AlterAnswer:
    error: int
    message: str | None


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs:
    """Change configs of one resource; a value of None removes the config."""

    name: ClassVar[str] = "IncrementalAlterConfigs"
    api_key: ClassVar[int] = 44
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
    has_throttle_time: ClassVar[bool] = True
    version: ClassVar[int] = 1

    resource: Resource
    changes: Mapping[str, str | None]
    only_validate: bool = False

    def body(self) -> bytes:
        writer = Writer()
        writer.array(_write_alteration, [self])
        write_boolean(writer, self.only_validate)
        writer.tags(())
        return writer.value()

    def answer(self, reader: Reader) -> Sequence[AlterAnswer]:
        """Parse the results; there is one, unless the broker violates the protocol."""
        reader.int32()
        return reader.array(_altered, "results")


def _write_resource(writer: Writer, resource: Resource) -> None:
    writer.int8(resource.type)
    writer.string(resource.name)
    writer.uvarint(0)
    writer.tags(())


def _configs(reader: Reader) -> FoundConfigs:
    error, message = read_int16(reader), read_text(reader, "message")
    reader.int8()
    found = FoundConfigs(error, message, reader.string("resource"), reader.array(_config, "configs"))
    reader.tags()
    return found


def _config(reader: Reader) -> FoundConfig:
    found = FoundConfig(reader.string("config"), read_text(reader, "value"), read_boolean(reader), reader.int8())
    read_boolean(reader)
    reader.array(_synonym, "synonyms")
    reader.int8()
    read_text(reader, "documentation")
    reader.tags()
    return found


def _synonym(reader: Reader) -> None:
    reader.string("synonym")
    read_text(reader, "value")
    reader.int8()
    reader.tags()


def _write_alteration(writer: Writer, request: IncrementalAlterConfigs) -> None:
    writer.int8(request.resource.type)
    writer.string(request.resource.name)
    writer.array(_write_change, list(request.changes.items()))
    writer.tags(())


def _write_change(writer: Writer, change: tuple[str, str | None]) -> None:
    name, value = change
    writer.string(name)
    writer.int8(_DELETE if value is None else _SET)
    write_text(writer, value)
    writer.tags(())


def _altered(reader: Reader) -> AlterAnswer:
    answer = AlterAnswer(read_int16(reader), read_text(reader, "message"))
    reader.int8()
    reader.string("resource")
    reader.tags()
    return answer
