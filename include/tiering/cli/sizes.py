"""`./tiering sizes` and `log-dirs`: the remote log size, and local and remote bytes of the brokers' log dirs."""

from enum import StrEnum
from typing import Annotated

import typer

from include.tiering.cli.command import Json, Topics, finish, require_known_topics, session_of


class SizesBy(StrEnum):
    """What a row of the first table is about."""

    PARTITION = "partition"
    TOPIC = "topic"


def sizes(
    ctx: typer.Context,
    topic: Topics = None,
    log_dirs: Annotated[
        bool,
        typer.Option(help="Also look at brokers' logs, to show bytes that wait for a copy or are local and remote."),
    ] = True,
    by: Annotated[
        SizesBy, typer.Option("--by", help="What a row of the first table is about: a partition, or a whole topic.")
    ] = SizesBy.PARTITION,
    as_json: Json = False,
) -> None:
    """Show bytes and segments in remote storage, by partition and leader epoch, or with `--by topic` by topic.

    Only complete copies count. A segment that spans leader epochs counts once in its partition and once in each of
    its epochs, so the sum of the epochs may be larger than the partition. Bytes are safe while the verdict about their
    segment is passed. Further tables show the bytes that wait to be copied or deleted, those that a broker still has
    as well (both local and remote), and the costs if the settings have prices.
    """
    with session_of(ctx).opened() as app:
        require_known_topics(app, topic)
        report = app.sizes.report(topic or (), scan_log_dirs=log_dirs)
    from include.tiering.sizes.report import present_sizes

    finish(present_sizes(report, by_topic=by is SizesBy.TOPIC), as_json=as_json)


def log_dirs(ctx: typer.Context, topic: Topics = None, as_json: Json = False) -> None:
    """Show the bytes of each partition in each log directory, and the bytes of the whole partition in remote storage.

    `--json` prints the form of `kafka-log-dirs.sh --describe`, with the remote tier added.
    """
    with session_of(ctx).opened() as app:
        require_known_topics(app, topic)
        described, remote = app.sizes.describe_log_dirs(topic or ())
    from include.tiering.sizes.report import present_log_dirs

    finish(present_log_dirs(described, remote), as_json=as_json)
