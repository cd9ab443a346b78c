"""The task of `tiering_restore`.

The directory of a restore is below the setting `restore.directory`, and another remote storage is the one of the
setting `restore.into`, so that who may trigger the DAG can write nowhere else. A retry continues the restore.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator

from include.tiering.errors import SettingError, printable
from include.tiering.presentation import as_text
from include.tiering.units import parse_time_ms
from plugins.tiering_airflow.errors import RestoreFindingsError
from plugins.tiering_airflow.hook import TieringHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.app import App
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.restoring.plan import RestorePlan, RestoreRequest
    from include.tiering.settings import TieringSettings

RESTORE_TASK_ID: Final = "restore"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")


class RestoreOperator(BaseOperator):
    """Restores what the form names, with a line of progress every ten seconds; with *Dry run* it only says the cost."""

    def execute(self, context: "Context") -> dict[str, int]:
        """Run the task. Raises TieringError; RestoreFindingsError if some of the wanted offsets are not restored."""
        from include.tiering.restoring.report import ByteProgress, present_plan, present_restore, said_of_cost

        params = context["params"]
        with TieringHook().open() as app:
            target = target_of(app.settings, params)
            other = other_of(app.settings, params)
            request = _request(app, params, other)
            if params["dry_run"]:
                presentation = present_plan(app.restoring.plan(request, target, other=other), target)
                restored = 0
            else:
                progress = ByteProgress(app.adapters.clock, lambda line: self.log.info("%s", line))

                def planned(plan: "RestorePlan") -> None:
                    self.log.info("%s into %s: %s", plan.topic, target, said_of_cost(plan.cost))
                    progress.begin(plan.cost.size_bytes)

                report = app.restoring.run(request, target, other=other, on_planned=planned, on_bytes=progress.advance)
                presentation = present_restore(report)
                restored = report.plan.cost.segments - len(report.failed)
        for line in as_text(presentation).splitlines():
            self.log.info("%s", line)
        if not presentation.ok:
            raise RestoreFindingsError(presentation.summary)
        return {"segments": restored}


def target_of(settings: "TieringSettings", params: Mapping[str, Any]) -> Path:
    """Return the directory of a restore. Raises SettingError without `restore.directory`, or for another name."""
    directory = settings.restore.directory
    if directory is None:
        raise SettingError("restore.directory is not set: it names the directory below which this DAG may write")
    name = params["directory"] or params["topic"] or ""
    if _NAME.fullmatch(name) is None:
        raise SettingError(f"Directory is {printable(name)!r}: accepted: letters, digits, '.', '_' and '-'")
    return Path(directory) / name


def other_of(settings: "TieringSettings", params: Mapping[str, Any]) -> "OtherStorage | None":
    """Return the other storage of the form `storage`; None for other forms. Raises SettingError without `restore.into`.

    Of the worker's environment, variables count whose names begin with `TIERING_TARGET__`.
    """
    from include.tiering.app.recovery import other_storage
    from include.tiering.restoring.forms import RestoreForm

    if RestoreForm(params["form"]) is not RestoreForm.STORAGE:
        return None
    if settings.restore.into is None:
        raise SettingError("restore.into is not set: it names the settings file of the storage to restore into")
    return other_storage(Path(settings.restore.into), os.environ)


def _request(app: "App", params: Mapping[str, Any], other: "OtherStorage | None") -> "RestoreRequest":
    from include.tiering.restoring.forms import RestoreForm

    if not params["topic"]:
        raise SettingError("name a topic")
    return app.restoring.requested(
        params["topic"],
        partitions=params["partitions"] or (),
        topic_id=params["topic_id"] or None,
        from_offset=params["from_offset"],
        to_offset=params["to_offset"],
        from_time_ms=_time("From time", params["from_time"]),
        to_time_ms=_time("To time", params["to_time"]),
        form=RestoreForm(params["form"]),
        committed=params["read_committed"],
        place=None if other is None else other.place,
    )


def _time(field: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise SettingError(f"{field} is {printable(text)!r}: {error}") from error
