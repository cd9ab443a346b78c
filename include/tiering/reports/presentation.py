"""What every report consists of: a JSON document, tables for people, one line, and whether it holds findings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from include.tiering.log_source.contract import ScanError
from include.tiering.model.ids import TopicIdPartition
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


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 segment`, `2 segments`"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
