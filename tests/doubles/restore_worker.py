"""A process that restores a topic, and may die by SIGKILL at a named step of its Nth part, or after some bytes.

    restore_worker TARGET [--kill-at STEP] [--part N] [--kill-after BYTES] [--topic T] [--form F] [--into FILE]

STEP is a value of `RestoreStep`, or `reading`: in the middle of a log. Settings come from TIERING_... variables.
"""

import json
import os
import threading
from pathlib import Path

from include.tiering.app import open_app
from include.tiering.app.recovery import other_storage
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.plan import RestoreRequest
from include.tiering.settings import load_settings
from tests.doubles.dying import die, worker_arguments

READING = "reading"
READ = "read.json"


def main() -> None:
    arguments = worker_arguments("--part", "--kill-after", texts=("--topic", "--form", "--into"))
    target = Path(arguments.run_id)
    steps: list[str] = []
    read = target.with_name(READ)
    lock, read_bytes = threading.Lock(), 0

    def observe(step: str) -> None:
        steps.append(step)
        if step == arguments.kill_at and steps.count(step) == (arguments.part or 1):
            die()

    def on_bytes(count: int) -> None:
        nonlocal read_bytes
        with lock, read.open("a") as lines:
            lines.write(f"{json.dumps(count)}\n")
            lines.flush()
            read_bytes += count
            if arguments.kill_after is not None and read_bytes >= arguments.kill_after:
                die()
        if arguments.kill_at == READING and steps.count("published") == (arguments.part or 1) - 1:
            die()

    with open_app(load_settings()) as app:
        form = RestoreForm(arguments.form or RestoreForm.SEGMENTS)
        other = None if arguments.into is None else other_storage(Path(arguments.into), os.environ)
        place = None if other is None else other.place
        request = RestoreRequest(app.restoring.partitions_of(arguments.topic), form=form, place=place)
        report = app.restoring.run(request, target, other=other, on_bytes=on_bytes, observe=observe)
        assert report.is_complete, report
