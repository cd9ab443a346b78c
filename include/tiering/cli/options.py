"""Options that several commands share, and what they mean.

What deletes or truncates asks a person first, and without a terminal needs it said in advance (`Approve`).
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.model.ids import TopicIdPartition


Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Topic name or shell-style pattern; may be repeated.", metavar="PATTERN"),
]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document instead of tables.")]
LimitBytes = Annotated[
    int | None,
    typer.Option("--limit-bytes", min=1, help="Take at most this many bytes, in whole segments.", metavar="BYTES"),
]


Approve = Annotated[bool, typer.Option("--approve", help="Approve in advance what this command is about to do.")]


def is_asked_on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def refusal_of(question: str) -> str | None:
    """Why a command that was not agreed to in advance does nothing, None if a person agrees now."""
    if not is_asked_on_a_terminal():
        return "without a terminal it needs --approve"
    return None if agrees(question) else "not confirmed"


def agrees(question: str) -> bool:
    """Ask on standard error; anything but a yes is a no."""
    return typer.confirm(question, default=False, err=True)


def remote_partition(app: "App", topic: str, partition: int, topic_id: str | None) -> "TopicIdPartition":
    """Raises SettingError unless exactly one partition with remote data is meant."""
    remote = [size.topic_id_partition for size in app.sizes.partition_sizes()]
    named = [p for p in remote if p.topic == topic and p.partition == partition]
    meant = [p for p in named if topic_id in (None, str(p.topic_id))]
    if len(meant) == 1:
        return meant[0]
    if not named:
        raise SettingError(f"{topic}-{partition}: nothing of it is in remote storage; ./tiering sizes lists what is")
    ids = ", ".join(str(p.topic_id) for p in named)
    raise SettingError(f"{topic}-{partition}: topics of this name have the ids {ids}: choose one with --topic-id")
