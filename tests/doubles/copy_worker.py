"""A process that runs one copy run and, if told to, dies by SIGKILL at a named point of it.

    copy_worker RUN_ID [--kill-at STEP [--base-offset N]] [--kill-after-bytes N] [--hold-at STEP]

The first start plans the run, later ones go on with it, as a batch does that is started again.
STEP is a value of `CopyStep`; without an offset it is that of the first segment, with the offset -1 that of any.
With `--hold-at` the copy of the first segment goes no further than this step, while the later ones are in flight.
Settings come from TIERING_... variables, as for every job.
"""

import threading

from include.tiering.app import open_app
from include.tiering.settings import load_settings
from tests.doubles.dying import KillAt, die, worker_arguments
from tests.doubles.quotas import SameLimiter


class KillAfterBytes:
    """A limiter that never returns once `limit_bytes` were asked for: dies in the middle of an object."""

    waited_seconds = 0.0
    waits_for = None

    def __init__(self, limit_bytes: int | None) -> None:
        self._left_bytes = limit_bytes

    def take(self, wanted_bytes: int) -> int:
        if self._left_bytes is not None:
            self._left_bytes -= wanted_bytes
            if self._left_bytes < 0:
                die()
        return wanted_bytes


def main() -> None:
    arguments = worker_arguments("--base-offset", "--kill-after-bytes", texts=["--hold-at"])
    quotas = SameLimiter(KillAfterBytes(arguments.kill_after_bytes))
    kill = KillAt(arguments.kill_at, None if arguments.base_offset == -1 else arguments.base_offset or 0)

    def observe(step: str, partition: object, offset: int) -> None:
        if step == arguments.hold_at and offset == 0:
            threading.Event().wait()
        kill(step, partition, offset)

    with open_app(load_settings(), quotas=quotas, observe=observe) as app:
        app.set_up.migrate()
        if not app.adapters.stores.work.items(arguments.run_id):
            app.copying.plan(arguments.run_id)
        app.copying.run_batch(arguments.run_id, f"{arguments.run_id}-batch")
