"""`./tiering doctor`: why is a topic not tiered?"""

from typing import Annotated

import typer

from include.tiering.cli.options import Json
from include.tiering.cli.output import finish
from include.tiering.cli.session import session_of
from include.tiering.errors import SettingError
from include.tiering.model.ids import is_legal_topic_name


def doctor(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of one topic.", metavar="TOPIC")],
    as_json: Json = False,
) -> None:
    """Say for each partition of a topic, in one line, why it is not tiered and what to do.

    Exit code 0 if everything tiers, 1 with findings. Nothing is planned and nothing is sent; as `ready`, it writes and
    removes one small object in the store.
    """
    if not is_legal_topic_name(topic):
        raise SettingError(f"{topic!r} is no topic: 1 to 249 of letters, digits, '.', '_' and '-'")
    with session_of(ctx).opened() as app:
        diagnoses = app.operations.diagnose(topic)
    from include.tiering.operations.doctor_report import present_doctor

    finish(present_doctor(topic, diagnoses), as_json=as_json)
