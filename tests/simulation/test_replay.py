"""One seed is one schedule: in this process, in another one, and next year."""

import os
import subprocess
import sys
from itertools import count, islice

from tests.simulation.digest import FILE, digest
from tests.simulation.kernel.choices import Choices
from tests.simulation.schedule import run_schedule
from tests.simulation.world.database import Database
from tests.simulation.world.tempers import Tempers


def test_the_trace_is_the_committed_one() -> None:
    """Another one means that the product makes other calls, or in another order: look whether that was meant, then
    `python -m tests.simulation.digest --write`."""
    assert digest() == FILE.read_text().strip()


def test_another_process_with_another_hash_seed_gives_the_same_trace() -> None:
    command = [sys.executable, "-m", "tests.simulation.digest"]
    environment = {**os.environ, "PYTHONHASHSEED": "2"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    assert told.stdout.strip() == digest()


def test_replaying_the_decisions_gives_the_same_trace() -> None:
    first = run_schedule(7, tracing=True)
    again = run_schedule(7, replay=first.taken, tracing=True)
    assert again.trace == first.trace
    assert again.taken == first.taken


def test_statements_do_what_they_do_when_sqlalchemy_runs_them() -> None:
    """The engine that schedules use is a double of SQLAlchemy's, over which no power failure is simulated."""
    usual = Database(direct=False)
    for seed in islice((one for one in count(11) if not Tempers.drawn(Choices(one)).loses_power), 3):
        assert run_schedule(seed, tracing=True).trace == run_schedule(seed, tracing=True, db=usual).trace


def test_nothing_but_quiet_decisions_is_a_quiet_schedule() -> None:
    outcome = run_schedule(7, replay=[])
    assert outcome.violation is None
    assert not any(outcome.taken)
