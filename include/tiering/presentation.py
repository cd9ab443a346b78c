"""What every report consists of: a JSON document, tables for people, one line, and whether it holds findings."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.model.ids import TopicIdPartition, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under column heads. Columns whose head ends in `>` hold numbers; the mark itself is not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Presentation:
    """One report. `document` and `tables` are made when asked for; `ok` is False if a person has to look."""

    document: Callable[[], Document]
    tables: Callable[[], tuple[Table, ...]]
    summary: str
    ok: bool = True


class TopicNames:
    """What topics and partitions are called in the tables of one report: by name, with the topic id where more than one
    topic has the name."""

    def __init__(self, partitions: Iterable[TopicIdPartition] = (), *, shared: Collection[str] = ()) -> None:
        """`partitions` are all of the report; `shared` are names that topics outside of it have as well."""
        self._ids: dict[str, set[str]] = {}
        self._shared = frozenset(shared)
        for partition in partitions:
            self.add(partition.topic, partition.topic_id)

    def add(self, topic: str, topic_id: Uuid | str) -> None:
        """One more topic of the report."""
        self._ids.setdefault(topic, set()).add(str(topic_id))

    def topic(self, topic: str, topic_id: Uuid | str) -> str:
        """`orders`, or `orders (topic id ...)`"""
        return topic + self._suffix(topic, topic_id)

    def partition(self, partition: TopicIdPartition) -> str:
        """`orders-0`, or `orders-0 (topic id ...)`"""
        return str(partition) + self._suffix(partition.topic, partition.topic_id)

    def _suffix(self, topic: str, topic_id: Uuid | str) -> str:
        is_shared = topic in self._shared or len(self._ids.get(topic, ())) > 1
        return f" (topic id {topic_id})" if is_shared else ""


def labels(partition: TopicIdPartition) -> Document:
    """The members by which every item names its partition."""
    return {"topic": partition.topic, "topic_id": str(partition.topic_id), "partition": partition.partition}


def epoch_pairs(leader_epochs: LeaderEpochs) -> list[list[int]]:
    """`[[epoch, start offset], ...]`"""
    return [[entry.epoch, entry.start_offset] for entry in leader_epochs]


def error_document(error: ScanError) -> Document:
    return {"path": error.path, "position": error.position, "error": error.error, "message": error.message}


def error_table(errors: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """No table if there is no error."""
    if not errors:
        return ()
    rows = tuple((error.path, "" if error.position is None else str(error.position), error.message) for error in errors)
    return (Table("could not be read", ("path", "byte>", "message"), rows),)


def notes_member(notes: tuple[ScanError, ...]) -> Document:
    """What is wrong where nothing will be read; no member if there is nothing."""
    return {"notes": [error_document(note) for note in notes]} if notes else {}


def note_table(notes: tuple[ScanError, ...]) -> tuple[Table, ...]:
    """What is wrong where nothing will be read; no table if there is nothing."""
    if not notes:
        return ()
    rows = tuple((note.path, "" if note.position is None else str(note.position), note.message) for note in notes)
    return (Table("not needed by any copy, and damaged", ("path", "byte>", "message"), rows),)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 segment`, `2 segments`"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
