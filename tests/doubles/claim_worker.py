"""A process that plans a copy and, if told to, dies by SIGKILL at a named point of raising the store's generation.

    python -m tests.doubles.claim_worker RUN_ID [--kill-at POINT]

POINT is a value of `ClaimStep`, or of the file store's write of the marker: `file written` or `file renamed`. Settings
come from TIERING_... variables.
"""

import argparse
import os
import signal
from typing import Any, Final

from include.tiering.app import open_app
from include.tiering.remote_storage.claim_store import ClaimStep
from include.tiering.settings import load_settings

FILE_WRITTEN: Final = "file written"
FILE_RENAMED: Final = "file renamed"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--kill-at")
    arguments = parser.parse_args()

    def die_at(point: str) -> None:
        if point == arguments.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    rename = os.rename

    def renamed(*names: Any, **directories: Any) -> None:
        die_at(FILE_WRITTEN)
        rename(*names, **directories)
        die_at(FILE_RENAMED)

    os.rename = renamed
    with open_app(load_settings()) as app:

        def observe(step: ClaimStep) -> None:
            die_at(step)

        app.adapters.observe_claim = observe
        app.copying.plan(arguments.run_id)


if __name__ == "__main__":
    main()
