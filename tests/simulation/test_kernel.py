"""What the simulation itself rests on: choices, and processes that die."""

from functools import partial
from typing import Any

import pytest

from tests.simulation.kernel.choices import Choices, Menu
from tests.simulation.kernel.scheduler import Process, Scheduler, Task, Verdict

MENU = Menu(("quiet", 1), ("rare", 1), ("never", 0))


class QuietWorld:
    """Every call has the verdict that it is told."""

    def __init__(self) -> None:
        self.verdict = Verdict.OK
        self.killed: list[str] = []
        self.errors: list[BaseException | None] = []

    def verdicts(self, _kind: str) -> Menu:
        return Menu((self.verdict, 1))

    def disturb(self) -> None: ...

    def note(self, *_: str) -> None: ...

    def after_kill(self, process: Process) -> None:
        self.killed.append(process.name)

    def after_error(self, task: Task) -> None:
        self.errors.append(task.error)


@pytest.fixture
def world() -> QuietWorld:
    return QuietWorld()


def scheduler_of(world: Any, seed: int = 1) -> Scheduler:
    return Scheduler(Choices(seed), world)


def test_the_same_seed_picks_the_same() -> None:
    drawn = [[Choices(5).pick(MENU) for _ in range(3)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert {Choices(seed).pick(MENU) for seed in range(50)} == {"quiet", "rare"}


def test_a_replay_goes_on_quietly_behind_its_end() -> None:
    choices = Choices(5, replay=[1])
    assert [choices.pick(MENU) for _ in range(3)] == ["rare", "quiet", "quiet"]
    assert choices.taken == [1, 0, 0]


def test_a_killed_process_makes_no_effect_in_its_finally_blocks(world: QuietWorld) -> None:
    scheduler = scheduler_of(world)
    process = Process(scheduler, "worker")
    effects = []

    def effect(name: str) -> None:
        scheduler.point(process, name, "call")
        effects.append(name)

    def body() -> None:
        try:
            effect("first")
            effect("second")
        finally:
            effect("clean-up")

    task = scheduler.spawn(process, "main", body)
    scheduler.run_quietly(lambda: effects == ["first"])
    scheduler.kill(process)
    assert effects == ["first"]
    assert task.done
    assert world.killed == ["worker"]
    assert scheduler.tasks == []


def test_time_goes_to_the_next_that_wakes(world: QuietWorld) -> None:
    scheduler = scheduler_of(world)
    process = Process(scheduler, "worker")
    began = scheduler.now_ms
    scheduler.spawn(process, "main", lambda: process.sleep(60))
    assert scheduler.run_quietly(lambda: process.finished)
    assert 60_000 <= scheduler.now_ms - began < 61_000


def first_of_two(world: QuietWorld, seed: int, *, slow_point: str) -> str:
    scheduler = scheduler_of(world, seed)
    scheduler.slow_point = slow_point
    done: list[str] = []

    def call(process: Process) -> None:
        scheduler.point(process, "call", "call")
        done.append(process.name)

    for name in ("slow", "quick"):
        process = Process(scheduler, name)
        process.is_slow = name == "slow"
        scheduler.spawn(process, name, partial(call, process))
    while not done:
        scheduler.step()
    return done[0]


def test_whoever_is_slow_is_overtaken(world: QuietWorld) -> None:
    usual = [first_of_two(world, seed, slow_point="") for seed in range(40)]
    slow = [first_of_two(world, seed, slow_point="call") for seed in range(40)]
    assert usual.count("slow") > 20
    assert slow.count("quick") > 30


def test_an_error_ends_its_task_and_is_reported(world: QuietWorld) -> None:
    scheduler = scheduler_of(world)
    process = Process(scheduler, "worker")

    def body() -> None:
        raise KeyError("lost")

    scheduler.spawn(process, "main", body)
    assert scheduler.run_quietly(lambda: process.finished)
    assert [type(error) for error in world.errors] == [KeyError]
