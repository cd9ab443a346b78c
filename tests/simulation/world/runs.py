"""Runs as Airflow would start them: plan, then batches; a batch that ended or looks dead is started again.
Verifications behind
copies, and audits, whose plans a person answers."""

from collections.abc import Sequence
from typing import Any, Final

from include.tiering.configs.pools import COPIER_POOL
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.deletion_limits import DeletionLimitReport
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.sides import Side
from tests.simulation.world.world import World

_MOST_RETRIES: Final = 3
_ROLLS: Final = Menu(((3, 4, 5), 40), ((2, 7, 4), 35), ((3, 2, 8), 25))


class Runs:
    """All runs of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._copy_runs: list[str] = []
        self._expire_runs: list[str] = []
        self._waiting: dict[str, str] = {}
        self._sides: dict[str, Side] = {}
        """Whose each run is."""
        self._numbers = 0
        self._batches: list[tuple[str, str, str, Process]] = []
        self._succeeded: set[Process] = set()
        """Batches that left nothing to try again."""
        self.empty_plans = 0
        self.held_back: list[Any] = []
        self.asked: dict[Any, Any] = {}
        """What plans have asked a person to follow, by partition: whoever answers may have thought for long."""
        self.refusals: Sequence[Any] = ()
        """Of the last audit."""

    def create_topic(self, name: str) -> None:
        world = self._world
        brokers = tuple(range(1, 2 + world.choices.number(3)))
        rolls: Any = world.choices.pick(_ROLLS)
        world.cluster.create_topic(world.topic_id(), name, 1 + world.choices.number(2), brokers, rolls)

    def start_copy_run(self, side: Side | None = None) -> None:
        """With the rightful database, or another one."""
        side = side or self._world.side
        if len(self._world.alive("planner", side)) + len(self._world.alive("copier", side)) >= 5:
            return
        run_id = self._new_id("copy", side)
        batches = 1 + self._world.choices.number(2)

        def body(app: Any, process: Process) -> None:
            plan = app.copying.plan(run_id)
            self.held_back = list(plan.held_back)
            self.asked.update({one.topic_id_partition: one for one in plan.held_back if one.follow_from is not None})
            if not plan.partitions:
                self.empty_plans += 1
                return
            self._copy_runs.append(run_id)
            for number in range(batches):
                self._start_batch("copier", run_id, f"{run_id}-{number}")

        self._world.happened("a copy run begins", run_id)
        self._world.start("planner", body, side)

    def start_expire_run(self, side: Side | None = None) -> None:
        """With the rightful database, or another one."""
        side = side or self._world.side
        if len(self._world.alive("expirer", side)) + len(self._world.alive("deleter", side)) >= 4:
            return
        run_id = self._new_id("expire", side)
        batches = 1 + self._world.choices.number(2)

        def body(app: Any, process: Process) -> None:
            self._world.watch.expiration_planning(process)
            plan = app.expiration.plan(run_id)
            if not plan.expirations:
                self.empty_plans += 1
                return
            if _is_released(app.expiration.apply_limits(run_id)):
                self._begin_deleting(run_id, batches)
            else:
                self._waiting[run_id] = plan.plan_hash

        self._world.happened("an expiration run begins", run_id)
        self._world.start("expirer", body, side)

    def start_verification(self) -> None:
        """Behind a copy run, as its DAG does; that of an old one, too."""
        if self._copy_runs and len(self._world.alive("verifier")) < 3:
            self.verify(self._copy_runs[self._world.choices.number(len(self._copy_runs))])

    def verify(self, run_id: str | None, *, missing_is_real: bool = False) -> None:
        """The quality check of a run; None: of all that has not passed. A person may confirm a loss."""
        side = self._world.side if run_id is None else self._sides[run_id]

        def body(app: Any, process: Process) -> None:
            report = app.verification.verify_run(run_id, confirm=(lambda _found: True) if missing_is_real else None)
            if self._world.is_watched(process):
                self._world.watch.quality.ended(process)
            self._world.note(process.name, "verified", f"{report.segments}, {len(report.failed)} broken rules", "")

        self._world.happened("a verification begins", run_id or "of all")
        self._world.start("verifier", body, side)

    def start_audit(self) -> None:
        """Verification, and plan what goes; a person is asked always."""
        if self._world.alive("auditor"):
            return
        run_id, audit_id = self._new_id("removal", self._world.side), self._new_id("audit", self._world.side)

        def body(app: Any, process: Process) -> None:
            report = app.audit.run(audit_id)
            self.refusals = report.record.refusals
            plan = app.audit.plan_removals(run_id, audit_id)
            if not plan.removals:
                self.empty_plans += 1
                return
            assert not _is_released(app.audit.apply_removal_limits(run_id))
            self._waiting[run_id] = plan.plan_hash

        self._world.happened("an audit begins", audit_id)
        self._world.start("auditor", body)

    def approve(self) -> None:
        """Somebody answers the question of a run, after looking again as the DAG does."""
        if not self._waiting:
            return
        run_ids = list(self._waiting)
        run_id = run_ids[self._world.choices.number(len(run_ids))]
        plan_hash = self._waiting.pop(run_id)

        def body(app: Any, process: Process) -> None:
            if run_id.startswith("removal"):
                app.audit.approve_removals(run_id, plan_hash, author="operator")
                self._start_batch("remover", run_id, f"{run_id}-0")
            elif not app.expiration.withdrawn(run_id):
                app.expiration.approve(run_id, plan_hash, author="operator")
                self._begin_deleting(run_id, 1)

        self._world.happened("a plan is approved", run_id)
        self._world.start("approver", body, self._sides[run_id])

    def delete_without_asking(self) -> None:
        """Somebody starts the batch of a run by hand, though nobody agreed to its plan."""
        if self._waiting:
            run_id = next(iter(self._waiting))
            self._world.happened("a batch is started without an approval", run_id)
            kind = "remover" if run_id.startswith("removal") else "deleter"
            self._start_batch(kind, run_id, f"{run_id}-by-hand")

    def restart_a_batch(self) -> None:
        """Airflow's retry: under the same batch id, whether the first one is dead or only looks so."""
        ended = [one for one in self._batches if one[3].dead or one[3].finished or self._is_stalled(one[3])]
        if ended:
            self._start_again(ended[self._world.choices.number(len(ended))])

    def retry(self) -> None:
        """What was killed or left something is tried again when the faults stop, too, with plans of before."""
        ended = [one for one in self._batches if one[3].dead or one[3].finished]
        ended = [one for one in ended if one[3].side is self._world.side]
        for batch in [one for one in ended if one[3] not in self._succeeded][-_MOST_RETRIES:]:
            self._start_again(batch)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def forget(self, side: Side) -> None:
        """Nobody goes on with it."""
        self._waiting = {run_id: one for run_id, one in self._waiting.items() if self._sides[run_id] is not side}
        self._batches = [one for one in self._batches if one[3].side is not side]
        self._copy_runs = [run_id for run_id in self._copy_runs if self._sides[run_id] is not side]

    def _is_stalled(self, process: Process) -> bool:
        return process.stalled_until_ms > self._world.scheduler.now_ms

    def _start_again(self, batch: tuple[str, str, str, Process]) -> None:
        self._batches.remove(batch)
        kind, run_id, batch_id, _ = batch
        self._world.happened("a batch is started again", batch_id)
        self._start_batch(kind, run_id, batch_id)

    def _begin_deleting(self, run_id: str, batches: int) -> None:
        self._expire_runs.append(run_id)
        for number in range(batches):
            self._start_batch("deleter", run_id, f"{run_id}-{number}")

    def _start_batch(self, kind: str, run_id: str, batch_id: str) -> None:
        def body(app: Any, process: Process) -> None:
            if kind == "copier":
                pool = COPIER_POOL if self._world.tempers.has_pools else None
                result = app.copying.run_batch(run_id, batch_id, pool=pool)
                self._world.note(
                    process.name,
                    "ended",
                    f"{len(result.copied)} copied, {len(result.failed)} failed",
                    str(result.ended),
                )
                is_left = bool(result.failed) or result.ended is not BatchEnd.NO_WORK
            elif kind == "remover":
                result = app.audit.run_removal_batch(run_id, batch_id)
                self._world.note(process.name, "ended", f"{len(result.items)} settled, {len(result.waiting)} wait", "")
                is_left = bool(result.waiting)
            else:
                result = app.expiration.run_batch(run_id, batch_id)
                self._world.note(
                    process.name, "ended", f"{len(result.deleted)} deleted, {len(result.failed)} failed", ""
                )
                is_left = bool(result.failed)
                if result.held and not (result.deleted or result.failed):
                    self.empty_plans += 1  # what it holds each plan names again
            if not is_left:
                self._succeeded.add(process)

        process = self._world.start(kind, body, self._sides[run_id])
        self._batches.append((kind, run_id, batch_id, process))
        del self._batches[:-12]

    def _new_id(self, kind: str, side: Side) -> str:
        self._numbers += 1
        run_id = f"{kind}-{self._numbers}"
        self._sides[run_id] = side
        return run_id


def _is_released(report: DeletionLimitReport) -> bool:
    return not report.needs_approval or report.approval is not None
