"""`./tiering fetch`: read a partition back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.model.ids import TopicIdPartition
    from include.tiering.wiring import Tiering


def fetch(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[int, typer.Argument(help="Number of the partition.", min=0)],
    output: Annotated[Path, typer.Option("--output", help="Directory to write into.", metavar="DIR", file_okay=False)],
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Which topic, if several had this name.", metavar="ID")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read the records of a partition back from remote storage, without a broker.

    Writes one file per segment, named like the broker's own, into DIR/TOPIC-PARTITION. A file appears only when its
    length and CRC-32C are those of the source. Segments that did not pass `verify` are named and left out, with exit
    code 1.
    """
    with session_of(ctx).opened() as tiering:
        found = _partition(tiering, topic, partition, topic_id)
        fetched = list(tiering.fetch_partition(found, output))
    from include.tiering.reports.fetch import present_fetch

    finish(present_fetch(found, fetched), as_json=as_json)


def _partition(tiering: "Tiering", topic: str, partition: int, topic_id: str | None) -> "TopicIdPartition":
    """Raises SettingError unless exactly one partition with remote data is meant."""
    remote = [size.topic_id_partition for size in tiering.sizes()]
    named = [p for p in remote if p.topic == topic and p.partition == partition]
    meant = [p for p in named if topic_id in (None, str(p.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        raise SettingError(f"{topic}-{partition}: nothing of it is in remote storage; ./tiering sizes lists what is")
    ids = ", ".join(str(p.topic_id) for p in named)
    raise SettingError(f"{topic}-{partition}: topics of this name have the ids {ids}: choose one with --topic-id")
