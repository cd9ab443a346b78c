"""`./tiering pause` and `resume`: the switch that every sender watches."""

from typing import Annotated

import typer

from include.tiering.cli.session import author, session_of
from include.tiering.errors import SettingError

Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic; default: all sending.", metavar="NAME")]


def pause(ctx: typer.Context, topic: Topic = None) -> None:
    """Stop sending within a second, in every process and on every host, until `./tiering resume`.

    Batches keep their place and wait. A topic that is paused by name stays so when all sending is resumed.
    """
    with session_of(ctx).opened() as tiering:
        tiering.work.pause(_checked(topic), author=author())
        _say(tiering.work.paused_topics())


def resume(ctx: typer.Context, topic: Topic = None) -> None:
    """Let sending go on after `./tiering pause`, with the same --topic."""
    with session_of(ctx).opened() as tiering:
        tiering.work.resume(_checked(topic), author=author())
        _say(tiering.work.paused_topics())


def _checked(topic: str | None) -> str | None:
    from include.tiering.model.ids import is_legal_topic_name

    if topic is not None and not is_legal_topic_name(topic):
        raise SettingError(f"--topic {topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249")
    return topic


def _say(paused_topics: frozenset[str]) -> None:
    from include.tiering.reports.status import paused_words

    typer.echo(paused_words(paused_topics))
