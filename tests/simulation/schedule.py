"""One schedule, from its seed to its verdict.

Phase one: 50 to 300 steps in which anything may happen. Phase two: faults stop, what runs ends. Phase three: runs as a
quiet deployment would start them, until nothing is left to do; within a bound, or liveness is broken.
"""

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.invariants.liveness import Closing
from tests.simulation.invariants.watch import Violation
from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.runtime import simulated_runtime
from tests.simulation.kernel.scheduler import Scheduler
from tests.simulation.world.database import Database, database
from tests.simulation.world.deployment import set_up_in_memory
from tests.simulation.world.events import Events
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.measuring import measuring_by
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World

_LENGTHS = Menu((50, 10), (120, 25), (200, 35), (300, 30))
_FIRST_RECORDS = Menu((4, 35), (8, 45), (14, 20))

_BEGINNINGS = Menu(("backfill", 35), ("archive", 40), ("interrupted", 25))
_QUIET_TIME_MS = 30_000

TraceLine = tuple[int, int, str, str, str, str]


@dataclass(slots=True)
class Outcome:
    """What a schedule came to."""

    seed: int
    steps: int
    taken: list[int]
    violation: Violation | None
    coverage: Counter[str]
    trace: list[TraceLine] = field(default_factory=list)
    cause: BaseException | None = None


def run_schedule(
    seed: int, *, replay: Sequence[int] | None = None, tracing: bool = False, db: Database | None = None
) -> Outcome:
    """Everything that this seed decides; with `replay`, what these decisions say."""
    choices = Choices(seed, replay)
    current: list[Scheduler] = []
    logging.disable(logging.CRITICAL)
    try:
        with (
            _without_collections(),
            simulated_runtime(lambda: current[0]),
            measuring_by(lambda: current[0].world),
            set_up_in_memory(),
        ):
            world = World(choices, db or database(), tracing=tracing, current=current)
            steps = _play(world)
            _bury_all(world)
    finally:
        logging.disable(logging.NOTSET)
    watch = world.watch
    return Outcome(seed, steps, choices.taken, watch.violation, world.coverage, world.trace, watch.cause)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Garbage is collected between schedules: within one nearly all of it is young, and looking at all of it again and
    again took a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _play(world: World) -> int:
    """The number of steps of the first phase."""
    runs = Runs(world)
    events = Events(world, runs)
    runs.create_topic("orders")
    if world.tempers.two_topics:
        runs.create_topic("payments")
    handovers = HandoverEvents(world, runs)
    if world.tempers.hands_over:
        handovers.topic_configs()
    for log in world.cluster.logs.values():
        first = world.choices.pick(_FIRST_RECORDS)
        assert isinstance(first, int)
        log.produce(first)
        log.replicate()
        for replica in log.replicas.values():
            log.checkpoint(replica)
    world.disturbances = events
    length = world.choices.pick(_LENGTHS)
    assert isinstance(length, int)
    events.begin()
    beginning = world.choices.pick(_BEGINNINGS)
    if beginning == "interrupted" and not world.tempers.publishes:
        began = _interrupted(world, runs)
    else:
        began = _backfill(runs) if beginning == "backfill" else _archive(world, runs)
    if world.tempers.publishes:
        began = _prepare(world, runs, handovers)
    while world.scheduler.steps < began + length and world.watch.violation is None:
        world.scheduler.step()
    steps = world.scheduler.steps - began
    if world.watch.violation is None:
        Closing(world, runs).run()
    return steps


def _backfill(runs: Runs) -> int:
    """Nothing is remote yet."""
    runs.start_copy_run()
    return 0


def _archive(world: World, runs: Runs) -> int:
    """What there is was copied in peace, and some time ago. Returns the steps that this took."""
    scheduler = world.scheduler
    runs.start_copy_run()
    scheduler.run_quietly(lambda: not scheduler.tasks or world.watch.violation is not None)
    scheduler.now_ms += _QUIET_TIME_MS
    scheduler.quiet = False
    runs.start_expire_run()
    return scheduler.steps


def _interrupted(world: World, runs: Runs) -> int:
    """A few segments were copied, then the processes died: their plan is there still, and will be gone on with. Returns
    the steps that this took."""
    scheduler, copied = world.scheduler, world.watch.were_finished
    enough = 1 + world.choices.number(3)
    runs.start_copy_run()
    scheduler.run_quietly(lambda: len(copied) >= enough or not scheduler.tasks)
    for process in world.alive():
        scheduler.kill(process)
    scheduler.now_ms += _QUIET_TIME_MS
    scheduler.quiet = False
    return scheduler.steps


def _prepare(world: World, runs: Runs, handovers: HandoverEvents) -> int:
    """A handover has got somewhere in peace, or what is remote can be published. Returns the steps that all of it
    took."""
    scheduler = world.scheduler

    def in_peace() -> None:
        scheduler.run_quietly(lambda: not scheduler.tasks or world.watch.violation is not None)

    if world.tempers.hands_over:
        handovers.prepare(in_peace)
    else:
        in_peace()
        runs.verify(None)
        in_peace()
        handovers.owner_hands_over()
    scheduler.quiet = False
    return scheduler.steps


def _bury_all(world: World) -> None:
    for process in world.processes:
        if not process.finished:
            world.scheduler.kill(process)
