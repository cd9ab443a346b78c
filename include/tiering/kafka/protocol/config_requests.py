"""Configs of topics and brokers.

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
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from include.tiering.formats.flexible import Reader, Writer
from include.tiering.kafka.protocol.fields import read_boolean, read_int16, read_text, write_boolean, write_text

_SET: Final = 0
_DELETE: Final = 1


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A broker's name is its id as text, or empty for the default of all."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class FoundConfig:
    """`value` is None where it is null or sensitive. `source` is Kafka's number."""

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
    """Of one resource. A change to None removes the config there."""

    name: ClassVar[str] = "IncrementalAlterConfigs"
    api_key: ClassVar[int] = 44
    flexible_request: ClassVar[bool] = True
    flexible_answer: ClassVar[bool] = True
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
        """One, unless the broker answers something else."""
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
