"""A process that rebuilds the metadata of the store and, if told to, dies by SIGKILL at a named point of it.

    rebuild_worker RUN_ID [--kill-at STEP]

STEP is a value of `RebuildStep`. Settings come from TIERING_... variables. RUN_ID is not used: nothing but the store
and the database says what is left to do.
"""

from include.tiering.app import open_app
from include.tiering.settings import load_settings
from tests.doubles.dying import KillAt, worker_arguments


def main() -> None:
    observe = KillAt(worker_arguments().kill_at)
    with open_app(load_settings()) as app:
        app.recovery.rebuild(app.recovery.plan_rebuild(), author="test", observe=observe)
