"""Tasks that take turns, a clock that is moved by hand, and processes that die, stall and come back.

A task is a greenlet. It gives up control at a *point*: a call of a contract, a step of a protocol, a sleep, a lock.
The scheduler decides there what happens next: which task goes on, whether the call fails before or after its effect,
whether the process dies or stalls, whether the world does something meanwhile, how much time passes. Every such
decision is one of `Choices`, nothing else decides, so a seed is a schedule.

A killed process makes no further effect: each of its points refuses, those in `finally` blocks included.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from greenlet import getcurrent, greenlet

from tests.simulation.kernel.choices import Choices, Menu

STEP_MS: Final = 5
_MOST_QUIET_STEPS: Final = 20_000


class Killed(BaseException):
    """The process of this task is dead. Not an Exception: nothing may handle it."""


class Verdict(Enum):
    """What becomes of a call. OK is the quiet option."""

    OK = "ok"
    FAIL_BEFORE = "fails before its effect"
    FAIL_MIDDLE = "fails in the midst of its effect"
    FAIL_AFTER = "has its effect, the answer is lost"
    KILL_BEFORE = "its process is killed before the effect"
    KILL_AFTER = "its process is killed after the effect"
    STALL_BEFORE = "its process stalls before the effect"
    STALL_AFTER = "its process stalls after the effect"


class World(Protocol):
    """What the scheduler asks between two steps."""

    def verdicts(self, kind: str) -> Menu: ...

    def disturb(self) -> None:
        """Do something that no task asked for."""
        ...

    def note(self, actor: str, what: str, detail: str, outcome: str) -> None: ...

    def after_kill(self, process: "Process") -> None: ...

    def after_error(self, task: "Task") -> None:
        """A task ended by an error."""
        ...


class Process:
    """A worker process: its tasks, whether it lives, how its clocks run."""

    def __init__(
        self, scheduler: "Scheduler", name: str, *, skew_ms: int = 0, drift: float = 0.0, side: Any = None
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.side = side
        """The database that it works with; None: none."""
        self.began_step = scheduler.steps
        self.dead = False
        self.stalled_until_ms = 0
        self.tasks: list[Task] = []
        self.last_step = ""
        self.is_slow: bool | None = None
        """Whether its calls at the slow point take their time; None: not decided."""
        self.stage = ""
        """Of a handover that it carries on."""
        self._skew_ms = skew_ms
        self._rate = 1.0 + drift

    # The Clock of this process.

    def now_ms(self) -> int:
        return self.scheduler.now_ms + self._skew_ms

    def monotonic(self) -> float:
        return (self.scheduler.now_ms - START_MS) * self._rate / 1000 + 5_000.0

    def process_seconds(self) -> float:
        return 0.0

    def thread_seconds(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.scheduler.point(self, "clock.sleep", "sleep")
        if seconds > 0:
            self.scheduler.block(lambda: False, seconds)

    @property
    def finished(self) -> bool:
        return all(task.done for task in self.tasks)


START_MS: Final = 1_700_000_000_000


class Task:
    """One thread of a process."""

    __slots__ = ("error", "greenlet", "held_until", "kind", "label", "name", "process", "ready_if", "wake_ms")

    def __init__(self, process: Process, name: str, body: Callable[[], object], parent: greenlet) -> None:
        self.process = process
        self.name = name
        self.label = "start"
        self.kind = "start"
        self.ready_if: Callable[[], bool] | None = None
        self.wake_ms: int | None = None
        self.held_until = 0
        """A step, before which it does not go on: its call takes its time."""
        self.error: BaseException | None = None

        def run(_first: object = None) -> None:
            with self:
                if not process.dead:
                    body()

        self.greenlet = greenlet(run, parent)

    def __enter__(self) -> None:
        """The body runs within: whatever ends it ends the task and nothing else."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Killed):
            self.error = error
        return True

    @property
    def done(self) -> bool:
        return self.greenlet.dead or (self.process.dead and not self.greenlet)

    def is_ready(self, now_ms: int) -> bool:
        if self.ready_if is None or self.ready_if():
            return True
        return self.wake_ms is not None and now_ms >= self.wake_ms


_NEXT: Final = Menu(("go on", 62), ("switch", 20), ("world", 9), ("time", 9))
_JUMPS: Final = Menu((50, 20), (450, 30), (1_500, 20), (9_500, 30))
_STALLS: Final = Menu((2_000, 20), (33_000, 60), (70_000, 20))
_NEVER_FAIL: Final = frozenset({"wait", "start", "stalled"})


class Scheduler:
    """One schedule. `step` until enough happened, then `run_quietly`. Every other process takes its time at the
    `slow_point`."""

    def __init__(self, choices: Choices, world: World) -> None:
        self.choices = choices
        self.world = world
        self.now_ms = START_MS
        self.database_ahead_ms = 0
        """How far the clock of the database's host is ahead of the true time; negative: behind it."""
        self.furthest_ms = START_MS
        """The latest time that the database has said, while its clock was ahead."""
        self.steps = 0
        self.quiet = False
        self.slow_point = ""
        self.most_held_steps = 24
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self._last: Task | None = None
        self._hub = getcurrent()

    @property
    def database_ms(self) -> int:
        """What the database says that it is."""
        return self.now_ms + self.database_ahead_ms

    def spawn(self, process: Process, name: str, body: Callable[[], object]) -> Task:
        task = Task(process, name, body, self._hub)
        process.tasks.append(task)
        self.tasks.append(task)
        return task

    def current_process(self) -> Process:
        assert self.current is not None
        return self.current.process

    # Called by tasks.

    def point(self, process: Process, label: str, kind: str) -> Verdict:
        """Give up control; what was decided about the call that follows."""
        if process.dead:
            raise Killed
        task = self.current
        if task is None:
            return Verdict.OK
        task.label, task.kind = label, kind
        if label == self.slow_point and not self.quiet and self._is_slow(process):
            task.held_until = self.steps + self.choices.number(self.most_held_steps)
            self.world.note(process.name, "slow", "", label)
        verdict: Verdict = self._hub.switch()
        if process.dead:
            raise Killed
        return verdict

    def block(self, ready_if: Callable[[], bool], seconds: float | None) -> None:
        """Give up control until `ready_if`, or until some time has passed."""
        task = self.current
        if task is None:
            return
        if task.process.dead:
            raise Killed
        task.ready_if = ready_if
        task.wake_ms = None if seconds is None else self.now_ms + round(seconds * 1000)
        task.label, task.kind = "wait", "wait"
        self._hub.switch()
        if task.process.dead:
            raise Killed

    def _is_slow(self, process: Process) -> bool:
        """Every other one, so that those who come later get ahead of it."""
        if process.is_slow is None:
            process.is_slow = self.choices.number(2) == 1
        return process.is_slow

    # Called by the hub.

    def step(self) -> None:
        """One decision of what comes next, and its consequence."""
        self.steps += 1
        self.now_ms += STEP_MS
        ready = self._ready() or self._wake()
        what = "go on" if self.quiet else self.choices.pick(_NEXT)
        if what == "world" or not (ready or self.quiet):
            self.world.disturb()
            return
        if what == "time" or not ready:
            jump_ms: Any = self.choices.pick(_JUMPS) if what == "time" else 0
            self.now_ms += jump_ms
            return
        others = len(ready) - 1 if what == "switch" else 0
        self._resume(ready[1 + self.choices.number(others)] if others else ready[0])

    def run_quietly(self, until: Callable[[], bool]) -> bool:
        """Without faults, in turn, until so; False if that takes too long."""
        self.quiet = True
        for _ in range(_MOST_QUIET_STEPS):
            if until():
                return True
            self.step()
        return until()

    def kill(self, process: Process) -> None:
        """Nothing that it does from now on has an effect. Called by the hub; a task sets `dead` and raises Killed."""
        process.dead = True
        for task in process.tasks:
            if not task.done:  # one that never ran is done once its process is dead
                self.current = task
                task.greenlet.throw(Killed)
        self.current = None
        self.tasks = [task for task in self.tasks if not task.done]
        self.world.after_kill(process)

    def stall(self, process: Process) -> None:
        stall_ms: Any = self.choices.pick(_STALLS)
        process.stalled_until_ms = self.now_ms + stall_ms

    def _ready(self) -> list[Task]:
        """The task that ran last comes first, the others in the order in which they wait."""
        now_ms, steps, quiet = self.now_ms, self.steps, self.quiet
        ready = [
            task
            for task in self.tasks
            if (quiet or (task.process.stalled_until_ms <= now_ms and task.held_until <= steps))
            and (task.ready_if is None or task.is_ready(now_ms))
        ]
        last = self._last
        if not quiet and last is not None and last in ready and ready[0] is not last:
            ready.remove(last)
            ready.insert(0, last)
        return ready

    def _resume(self, task: Task) -> None:
        process = task.process
        verdict: Any = Verdict.OK
        if not self.quiet and task.kind not in _NEVER_FAIL:
            verdict = self.choices.pick(self.world.verdicts(task.kind))
            if verdict is Verdict.KILL_BEFORE:
                self.world.note(process.name, "killed", f"before {task.label}", "")
                self.kill(process)
                return
            if verdict is Verdict.STALL_BEFORE:
                self.world.note(process.name, "stalls", f"before {task.label}", "")
                self.stall(process)
                return
        task.ready_if = None
        task.wake_ms = None
        self.current = self._last = task
        task.greenlet.switch(verdict)
        self.current = None
        if process.dead:
            self.kill(process)
        elif task.done:
            self.tasks.remove(task)
            if task.error is not None:
                self.world.after_error(task)
        elif self.quiet:
            self.tasks.remove(task)
            self.tasks.append(task)

    def _wake(self) -> list[Task]:
        """Nobody can go on now: time goes to where somebody can."""
        wakes = [wake for task in self.tasks if (wake := self._wake_of(task)) is not None]
        if wakes:
            self.now_ms = max(self.now_ms, min(wakes))
        return self._ready()

    def _wake_of(self, task: Task) -> int | None:
        if not self.quiet and task.process.stalled_until_ms > self.now_ms:
            return task.process.stalled_until_ms
        return task.wake_ms
