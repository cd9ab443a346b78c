"""What happens by itself: brokers crash, elect, truncate, delete and move; operators change their minds; runs begin."""

from typing import Any

from tests.simulation.kernel.choices import Menu
from tests.simulation.world.broker_events import BrokerEvents
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.history_events import HistoryEvents
from tests.simulation.world.mistake_events import MistakeEvents
from tests.simulation.world.operator_events import OperatorEvents
from tests.simulation.world.orphan_events import OrphanEvents
from tests.simulation.world.quality_events import QualityEvents
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World


class Events(EventSource):
    """Everything that may disturb the work of one world, by weight."""

    def __init__(self, world: World, runs: Runs) -> None:
        super().__init__(world, runs)
        self._brokers = brokers = BrokerEvents(world, runs)
        self._operators = OperatorEvents(world, runs)
        self._handovers = HandoverEvents(world, runs)
        quality = QualityEvents(world, runs)
        tempers = world.tempers
        by_brokers, by_operators = tempers.brokers + 2 * tempers.by_size, tempers.operators
        usual: tuple[tuple[Any, int], ...] = (
            (self._runs.start_copy_run, 12),
            (self._runs.restart_a_batch, 18),
            (self._runs.start_expire_run, 16),
            (self._runs.approve, 14),
            (self._runs.delete_without_asking, 4),
            (self._operators.a_weekend_passes, 2),
            (brokers.produce, 22),
            (brokers.checkpoint, 14),
            (brokers.elect, 3 * by_brokers),
            (brokers.elect_unclean, 4 * by_brokers),
            (brokers.abandoned_copy_is_replaced, 0),
            (brokers.lag, 2 * by_brokers),
            (brokers.local_retention, 3 * by_brokers),
            (brokers.delete_records_locally, 2 * by_brokers),
            (brokers.move, by_brokers),
            (brokers.roll, 2 * by_brokers),
            (brokers.transaction, 2 * by_brokers),
            (brokers.delete_topic, by_brokers),
            (brokers.broker_tiers, by_brokers),
            (brokers.broker_copies, 6 * by_brokers),
            (brokers.broker_expires, by_brokers),
            (brokers.corrupt, by_brokers),
            (brokers.compaction_is_switched, 0),
            (brokers.log_cleaner_runs, 0),
            (brokers.metadata_lags, 2 * by_brokers + 4 * tempers.by_size),
            (self._operators.retention_changes, 5 * by_operators + 4),
            (self._operators.quota_changes, 2 * by_operators),
            (self._operators.pause, 4 * by_operators),
            (self._operators.resize_pool, 12 * tempers.has_pools),
            (self._operators.truncate, 3 * by_operators),
            (self._operators.skip, 2 * by_operators),
            (self._operators.forget_tombstones, by_operators),
            (self._operators.deleted_topics_expire, by_operators),
            (self._operators.bucket_changes_hands, by_operators),
            (self._operators.owner_changes, 4 * by_operators + 4),
            (self._operators.backup, by_operators),
            (self._operators.restore, by_operators),
            (self._operators.power_fails, 60 * tempers.loses_power),
            (self._runs.start_verification, 14 * tempers.verifications),
            (quality.rots, 5 * tempers.verifications),
            (self._runs.start_audit, 16 * tempers.audits),
            (OrphanEvents(world, runs).appear, 12 * tempers.audits),
            (quality.fails, 4 * tempers.verdicts),
            (quality.passes, tempers.verdicts),
            *((event, 0) for event in self._handovers.events()),
            *((event, 0) for event in MistakeEvents(world, runs).events()),
            *((event, 0) for event in HistoryEvents(world, runs).events()),
            (self._late_write, 10),
            (self._kill, 3 * tempers.kills),
            (self._stall, 3 * tempers.stalls),
        )
        focus = tempers.focus
        weighed = [(event, focus.weight(event.__name__, weight)) for event, weight in usual]
        self._menu = Menu(*weighed)
        begins = (runs, self._handovers)
        self._beginnings = Menu(*((event, weight) for event, weight in weighed if event.__self__ in begins))

    def __call__(self) -> None:
        """While nobody works, somebody is likely to begin."""
        is_idle = not self._world.scheduler.tasks
        menu = self._beginnings if is_idle and self._choices.number(2) == 1 else self._menu
        event: Any = self._choices.pick(menu)
        event()
        if event.__self__ is self._brokers or event.__self__ is self._handovers:
            self._world.cluster.changed()

    def begin(self) -> None:
        """Half of the schedules have a retention from the start, so that something expires early."""
        if self._choices.number(2) == 1 or self._world.tempers.by_size:
            self._operators.retention_changes()

    def _late_write(self) -> None:
        if self._world.store.land_late(self._world, self._world.scheduler.now_ms):
            self._world.coverage["event: a late write arrives"] += 1

    def _kill(self) -> None:
        alive = self._world.alive()
        if alive:
            process = alive[self._choices.number(len(alive))]
            self._tell("a process is killed", process.name)
            self._world.scheduler.kill(process)

    def _stall(self) -> None:
        alive = self._world.alive()
        if alive:
            process = alive[self._choices.number(len(alive))]
            self._tell("a process stalls", process.name)
            self._world.scheduler.stall(process)
