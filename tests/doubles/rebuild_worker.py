"""A process that rebuilds the metadata of the store and, if told to, dies by SIGKILL at a named point of it.

    python -m tests.doubles.rebuild_worker RUN_ID [--kill-at STEP]

STEP is a value of `RebuildStep`. Settings come from TIERING_... variables. RUN_ID is not used: nothing but the store
and the database says what is left to do.
"""

import argparse
import os
import signal
from enum import StrEnum

from include.tiering.app import open_app
from include.tiering.settings import load_settings


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--kill-at")
    arguments = parser.parse_args()

    def observe(step: StrEnum) -> None:
        if step == arguments.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_app(load_settings()) as app:
        app.recovery.rebuild(app.recovery.plan_rebuild(), author="test", observe=observe)


if __name__ == "__main__":
    main()
