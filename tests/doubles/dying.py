"""What every worker has that is to die: the arguments that say where, and the death itself."""

import argparse
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class KillAt:
    """An observer of steps: the process dies at `step`, with `offset` only when the step has come to this offset."""

    step: str | None
    offset: int | None = None

    def __call__(self, step: str, _partition: object = None, offset: int | None = None) -> None:
        if step == self.step and self.offset in (None, offset):
            die()


def worker_arguments(*numbers: str, texts: Sequence[str] = ()) -> argparse.Namespace:
    """Parse the run, the step at which the worker is to die, and options that are numbers or texts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--kill-at")
    for option in numbers:
        parser.add_argument(option, type=int)
    for option in texts:
        parser.add_argument(option)
    return parser.parse_args()
