"""`./tiering ready`: can a run start, and which partitions are ready?"""

import typer

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.cli.options import Json, Topics
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of


def ready(ctx: typer.Context, topic: Topics = None, as_json: Json = False) -> None:
    """Check what must hold before a run: database, remote storage and its marker, log directories, topic facts, pause.
    Then name the partitions that wait, and what for; the others go on without them.

    Exit code 3 if waiting can help, 1 if a person has to act. With --topic every partition of it must be ready, else
    one is enough. It writes and removes one small object in the store.
    """
    with session_of(ctx).opened() as app:
        readiness = app.operations.ready(topics=topic)
    from include.tiering.operations.ready_report import present_ready

    decided = any(one.reason is not None and not one.reason.waitable for one in readiness.waiting)
    hopeless = not readiness.waitable or (bool(topic) and decided)
    finish(
        present_ready(readiness, all_of_them=bool(topic)),
        as_json=as_json,
        otherwise=ExitCode.FINDINGS if hopeless else ExitCode.RETRY,
    )
