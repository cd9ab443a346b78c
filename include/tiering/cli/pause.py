"""`./tiering pause` and `resume`: the switch that every sender watches."""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.session import author, session_of
from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App

Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic; default: all sending.", metavar="NAME")]


def pause(ctx: typer.Context, topic: Topic = None) -> None:
    """Stop sending within a second, in every process and on every host, until `./tiering resume`.

    Batches keep their place and wait. A topic that is paused by name stays so when all sending is resumed.
    """
    with session_of(ctx).opened() as app:
        app.adapters.stores.work.pause(_checked(topic), author=author())
        _say(app.adapters.stores.work.paused_topics())
        _claim_store(app)


def resume(ctx: typer.Context, topic: Topic = None) -> None:
    """Let sending go on after `./tiering pause`, with the same --topic."""
    with session_of(ctx).opened() as app:
        app.adapters.stores.work.resume(_checked(topic), author=author())
        _say(app.adapters.stores.work.paused_topics())
        _claim_store(app)


def _checked(topic: str | None) -> str | None:
    from include.tiering.model.ids import is_legal_topic_name

    if topic is not None and not is_legal_topic_name(topic):
        raise SettingError(f"--topic {topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249")
    return topic


def _claim_store(app: "App") -> None:
    """So that a backup of the database from before is refused. It is paused by now, whatever comes of that."""
    from include.tiering.remote_storage.store_ownership import unclaimed_words

    if (not_claimed := app.ownership.claim_if_possible()) is not None:
        typer.echo(unclaimed_words(not_claimed), err=True)


def _say(paused_topics: frozenset[str]) -> None:
    from include.tiering.operations.status_report import paused_words

    typer.echo(paused_words(paused_topics))
