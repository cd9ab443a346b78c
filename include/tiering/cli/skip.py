"""`./tiering skip`: let an archive go on behind offsets that are gone from the source."""

from typing import TYPE_CHECKING, Annotated

import typer

from include.tiering.cli.confirm import Approve, refusal_of
from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import author, session_of

if TYPE_CHECKING:
    from include.tiering.copying.decisions import Skip


def skip(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    partition: Annotated[int, typer.Option("--partition", help="Number of the partition.", min=0, metavar="N")],
    reason: Annotated[
        str, typer.Option("--reason", help="Why this is acceptable; kept with the decision.", metavar="TEXT")
    ],
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Which topic, if several had this name.", metavar="ID")
    ] = None,
    follow_from: Annotated[
        int | None,
        typer.Option(
            "--follow-source-from",
            help="Go on with the source's history from this offset, which plan names.",
            min=0,
            metavar="OFFSET",
        ),
    ] = None,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Record that offsets are lost to the archive, so that the copy goes on behind them.

    Brokers delete by their own retention. What goes before it was copied leaves a hole, and a partition with a hole
    waits: `plan` and `doctor` name its offsets, and nothing behind it is copied until somebody decides. So does a
    partition with a segment that failed the quality gate and that no source can replace. This is the decision. It is
    kept for ever with author and reason; reads of these offsets name it.

    What is skipped is no argument: it is looked up in the source now. A hole lies between the last copied offset and
    the start of the log that a copy reads; what is still there is never skipped, but for whole segments that a log
    cleaner compacted before they were copied (cleanup.policy was `compact` for a while). A failed segment is kept as it
    is, not served; if a source shows it again, as it was, it is copied anew all the same.

    With --follow-source-from: decide about a divergence of histories. After an unclean leader election the source has
    other records under offsets that are remote; `plan` and `doctor` name them, and nothing is copied until somebody
    decides. From OFFSET on the archive then follows the source. Nothing is deleted: what is remote from there on stays
    under its leader epochs, answers to fetch --offset with --epoch alone, and expires by the ordinary rules.

    Asks first; without a terminal it takes --approve. With nothing to skip it says so, and records nothing. Shows what
    was decided before.
    """
    if follow_from is not None:
        _follow(ctx, (topic, partition, follow_from, topic_id), reason, approve=approve, as_json=as_json)
        return
    with session_of(ctx).opened((topic,)) as app:
        planned = done = app.copying.plan_skip(topic, partition, topic_id)
        refusal = _refusal(planned, approve=approve)
        if refusal is None:
            done = app.copying.skip_offsets(planned, reason=reason, author=author())
    from include.tiering.copying.decisions import present_skip

    finish(present_skip(done, refusal), as_json=as_json)


def _follow(
    ctx: typer.Context, where: tuple[str, int, int, str | None], reason: str, *, approve: bool, as_json: bool
) -> None:
    from include.tiering.copying.decisions import follow_question, present_follow

    with session_of(ctx).opened((where[0],)) as app:
        planned = done = app.copying.plan_follow(*where)
        refusal = None if approve else refusal_of(follow_question(planned))
        if refusal is None:
            done = app.copying.follow_source(planned, reason=reason, author=author())
    finish(present_follow(done, refusal), as_json=as_json)


def _refusal(planned: "Skip", *, approve: bool) -> str | None:
    from include.tiering.copying.decisions import skip_question

    return None if approve or not planned.ranges else refusal_of(skip_question(planned))
