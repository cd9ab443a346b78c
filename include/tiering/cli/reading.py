"""`./tiering fetch`: read a partition back, completely or from an offset on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.command import MOST_INT, MOST_LONG, Json, amount_of, finish, remote_partition, session_of
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import SettingError
from include.tiering.units import MIB

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.model.segments import TopicIdPartition
    from include.tiering.presentation import Presentation


def fetch(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[int, typer.Argument(help="Number of the partition.", min=0, max=MOST_INT)],
    output: Annotated[Path, typer.Option("--output", help="Directory to write into.", metavar="DIR", file_okay=False)],
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", help="Id of the topic, if several topics have had this name.", metavar="ID"),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset", min=0, max=MOST_LONG, help="Start at the batch that contains this offset.", metavar="N"
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch",
            min=0,
            max=MOST_INT,
            help="Leader epoch of the offset; default: the newest epoch that has the offset.",
            metavar="E",
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            parser=amount_of("bytes", at_least=1, at_most=MOST_INT),
            help="Most bytes of batches to write; default: 1MiB.",
            metavar="BYTES",
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="Client id whose fetch quota applies; default: that of clients.", metavar="ID"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a partition's records from remote storage, without a broker.

    One file per segment is written into DIR/TOPIC-PARTITION, named as on a broker. A file appears only when its length,
    and its CRC-32C if known, are those of the source. Only you may read it. Segments that `verify` has not passed, that
    lie below the log start, or that cannot be read, are named and left out (exit code 1). The directory must be yours,
    no link, and not in one of `log_dirs` or the store.

    With --offset it writes one file FIRST-LAST.batches of whole record batches in the broker's format, beginning with
    the batch that contains the offset. The first batch is written even if it is larger than --max-bytes. If the fetch
    quota is exhausted by what all processes read before, nothing is written, and the throttle time is shown (exit code
    3). The file may be smaller than --max-bytes if the quota carries no more in its window. Without --offset, a whole
    partition is read at the pace of the quota.
    """
    if offset is None and (epoch, max_bytes) != (None, None):
        raise SettingError("--epoch and --max-bytes need --offset: a whole partition is read without them")
    if client is not None:
        _check_client(client)
    with session_of(ctx).opened() as app:
        from include.tiering.reading.files import require_beside

        require_beside(output, (*(each.path for each in app.settings.log_dirs), app.adapters.place.directory))
        found = remote_partition(app, topic, partition, topic_id)
        if offset is None:
            presentation = _all_of(app, found, output, client or "")
        else:
            presentation = _from(app, found, output, (offset, epoch, max_bytes or MIB), client or "")
    finish(presentation, as_json=as_json, otherwise=ExitCode.FINDINGS if offset is None else ExitCode.RETRY)


def _check_client(client: str) -> None:
    """Raise SettingError for a client id that cannot have a quota."""
    from include.tiering.configs.rules import checked_entity

    checked_entity("clients", client)


def _all_of(app: "App", partition: "TopicIdPartition", output: Path, client: str) -> "Presentation":
    from include.tiering.reading.report import present_fetch

    return present_fetch(partition, list(app.reading.fetch_partition(partition, output, client)))


def _from(
    app: "App",
    partition: "TopicIdPartition",
    output: Path,
    where: tuple[int, int | None, int],
    client: str,
) -> "Presentation":
    from include.tiering.reading.fetch import PartitionFetch
    from include.tiering.reading.files import write_records
    from include.tiering.reading.report import present_records

    offset, epoch, max_bytes = where
    (fetched,) = app.reading.fetch_records([PartitionFetch(partition, offset, max_bytes, epoch)], client)
    if fetched.error is not None:
        raise fetched.error
    return present_records(fetched, write_records(fetched, output) if fetched.records else None)
