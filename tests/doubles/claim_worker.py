"""A process that plans a copy and, if told to, dies by SIGKILL at a named point of raising the store's generation.

    claim_worker RUN_ID [--kill-at POINT]

POINT is a value of `ClaimStep`, or of the file store's write of the marker: `file written` or `file renamed`. Settings
come from TIERING_... variables.
"""

import os
from typing import Any, Final

from include.tiering.app import open_app
from include.tiering.settings import load_settings
from tests.doubles.dying import KillAt, worker_arguments

FILE_WRITTEN: Final = "file written"
FILE_RENAMED: Final = "file renamed"


def main() -> None:
    arguments = worker_arguments()
    die_at = KillAt(arguments.kill_at)
    rename = os.rename

    def renamed(*names: Any, **directories: Any) -> None:
        die_at(FILE_WRITTEN)
        rename(*names, **directories)
        die_at(FILE_RENAMED)

    os.rename = renamed
    with open_app(load_settings()) as app:
        app.adapters.observe_claim = die_at
        app.copying.plan(arguments.run_id)
