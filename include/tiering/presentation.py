"""Reports. Each has a JSON document, tables, a summary line, and a flag that says whether a person has to act."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from include.tiering.errors import printable
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.units import Quantity

Document = Mapping[str, Any]
"""The JSON document of a report; the return type of the function that makes it is a TypedDict with its members."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below column heads. A column of numbers has a head that ends in `>`, which is not shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Presentation:
    """A report. `document` and `tables` are computed when called; `ok` is False if a person has to act."""

    document: Callable[[], Document]
    tables: Callable[[], tuple[Table, ...]]
    summary: str
    ok: bool = True


class PartitionLabels(TypedDict):
    """The members that identify a partition."""

    topic: str
    topic_id: str
    partition: int


class TopicNames:
    """Names topics and partitions in the tables of a report: with the topic id if several topics have the same name."""

    def __init__(self, partitions: Iterable[TopicIdPartition] = (), *, shared: Collection[str] = ()) -> None:
        """`partitions` are all partitions of the report; `shared` are names that topics outside of it have as well."""
        self._ids: dict[str, set[str]] = {}
        self._shared = frozenset(shared)
        for partition in partitions:
            self.add(partition.topic, partition.topic_id)

    def add(self, topic: str, topic_id: Uuid | str) -> None:
        """Add a topic of the report."""
        self._ids.setdefault(topic, set()).add(str(topic_id))

    def topic(self, topic: str, topic_id: Uuid | str) -> str:
        """Return the topic as `orders`, or as `orders (topic id ...)` if several topics have the name."""
        return topic + self._suffix(topic, topic_id)

    def partition(self, partition: TopicIdPartition) -> str:
        """Return the partition as `orders-0`, or as `orders-0 (topic id ...)` if several topics have the name."""
        return str(partition) + self._suffix(partition.topic, partition.topic_id)

    def _suffix(self, topic: str, topic_id: Uuid | str) -> str:
        is_shared = topic in self._shared or len(self._ids.get(topic, ())) > 1
        return f" (topic id {topic_id})" if is_shared else ""


def labels(partition: TopicIdPartition) -> PartitionLabels:
    """Return the JSON members that identify a partition."""
    return {"topic": partition.topic, "topic_id": str(partition.topic_id), "partition": partition.partition}


def epoch_pairs(leader_epochs: LeaderEpochs) -> list[list[int]]:
    """Return leader epochs as `[[epoch, start offset], ...]`."""
    return [[entry.epoch, entry.start_offset] for entry in leader_epochs]


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return number and noun, such as `1 segment` or `2 segments`; without a `plural` an `s` is appended."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def listed(sentences: Sequence[str], most: int) -> str:
    """Return the first `most` sentences, separated by semicolons, and how many more there are."""
    more = [f"and {len(sentences) - most} more"] if len(sentences) > most else []
    return "; ".join([*sentences[:most], *more])


def as_text(presentation: Presentation) -> str:
    """Return the tables and the summary line as text; unprintable characters in cells and summary are escaped."""
    return "\n".join([*map(_table, presentation.tables()), printable(presentation.summary)])


_FORMULA: Final = ("=", "+", "-", "@")
_HARMLESS: Final = re.compile(r"-[A-Za-z0-9._-]*\Z")
"""Negative numbers, and names such as those of topics: no formula with an effect is written with these alone."""


def as_csv(tables: Iterable[Table]) -> str:
    """Return tables as CSV with a line of heads, separated by an empty line. The first column holds a table's title.

    Sizes are in bytes and durations in seconds, as numbers; unprintable characters are escaped. A text that a
    spreadsheet would take for a formula, such as the key of a foreign object, gets an apostrophe in front of it.
    """
    return "\n".join(map(_csv_of, tables))


def _csv_of(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", *(column.removesuffix(">") for column in table.columns)))
    writer.writerows((table.title, *map(_csv_cell, row)) for row in table.rows)
    return text.getvalue()


def _csv_cell(cell: str) -> str:
    text = str(cell.number) if isinstance(cell, Quantity) else printable(cell)
    return f"'{text}" if text.startswith(_FORMULA) and _HARMLESS.match(text) is None else text


def _table(table: Table) -> str:
    heads = [column.removesuffix(">") for column in table.columns]
    rows = [[printable(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    to_right = [column.endswith(">") for column in table.columns]
    lines = [heads, ["-" * width for width in widths], *rows]
    return "\n".join([table.title, *(_line(cells, widths, to_right) for cells in lines), ""])


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, to_right, strict=True)
    )
    return "  ".join(padded).rstrip()
