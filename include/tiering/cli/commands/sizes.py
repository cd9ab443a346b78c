"""`./tiering sizes`: the remote log size."""

import typer

from include.tiering.cli.options import Json, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def sizes(ctx: typer.Context, topic: Topics = None, as_json: Json = False) -> None:
    """Show bytes and segments in remote storage, by partition and leader epoch.

    Counts complete copies only. A segment that spans leader epochs counts once in its partition and once in each of
    its epochs, so the epochs may add up to more than the partition.
    """
    with session_of(ctx).opened() as tiering:
        found = tiering.sizes()
    from include.tiering.log_source.topic_patterns import matches
    from include.tiering.reports.sizes import present_sizes

    if topic:
        found = [size for size in found if matches(size.topic_id_partition.topic, topic)]

    finish(present_sizes(found), as_json=as_json)
