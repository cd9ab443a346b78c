"""A process that restores a topic and, if told to, dies by SIGKILL at a named step of its Nth part.

    restore_worker TARGET [--kill-at STEP] [--topic T] [--form F] [--part N]

STEP is a value of `RestoreStep`, or `reading`: in the middle of a log. Settings come from TIERING_... variables.
"""

import json
from pathlib import Path

from include.tiering.app import open_app
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.plan import RestoreRequest
from include.tiering.settings import load_settings
from tests.doubles.dying import die, worker_arguments

READING = "reading"
READ = "read.json"


def main() -> None:
    arguments = worker_arguments("--part", texts=("--topic", "--form"))
    target = Path(arguments.run_id)
    steps: list[str] = []
    read = target.with_name(READ)

    def observe(step: str) -> None:
        steps.append(step)
        if step == arguments.kill_at and steps.count(step) == (arguments.part or 1):
            die()

    def on_bytes(count: int) -> None:
        with read.open("a") as lines:
            lines.write(f"{json.dumps(count)}\n")
        if arguments.kill_at == READING and steps.count("published") == (arguments.part or 1) - 1:
            die()

    with open_app(load_settings()) as app:
        form = RestoreForm(arguments.form or RestoreForm.SEGMENTS)
        request = RestoreRequest(app.restoring.partitions_of(arguments.topic), form=form)
        report = app.restoring.run(request, target, on_bytes=on_bytes, observe=observe)
        assert report.is_complete, report
