"""Events of a world."""

from typing import Any, Final

from include.tiering.model.segments import RemoteLogSegmentId, Uuid, Verdict
from include.tiering.segments.values import Verification
from tests.simulation.invariants.rows import FINISHED, Row
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.broker_events import BrokerEvents
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.history_events import HistoryEvents
from tests.simulation.world.mistake_events import MistakeEvents
from tests.simulation.world.operator_events import OperatorEvents
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World

# What happens by itself: brokers crash, elect, truncate, delete and move; operators change their minds; runs begin.


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
            (self._operators.log_start_rises_into_a_local_segment, 0),
            (self._operators.old_leader_leads_in_stale_metadata, 0),
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


# What lies in the bucket and belongs to nobody: of attempts that a database of another time knew.

_LONG_AGO_MS: Final = 50 * 60 * 60 * 1000
_LEFT: Final = (("log",), ("log", "indexes"), ("indexes", "rsm-manifest"), ())
"""Never all three: that would be a complete copy. Of the last one an upload alone."""


class OrphanEvents(EventSource):
    """Of one world."""

    def __init__(self, world: World, runs: Runs) -> None:
        super().__init__(world, runs)
        self._dead_process = Process(world.scheduler, "of another time")
        self._dead_process.dead = True

    def appear(self) -> None:
        """Found, rather: they have been there for long."""
        known = self._world.watch.partitions()
        if not known:
            return
        partition, store = known[self._choices.number(len(known))], self._world.store
        began_ms = self._world.scheduler.now_ms - _LONG_AGO_MS
        place = f"{partition.topic}-{partition.topic_id}/{partition.partition}/{0:020d}-{self._world.topic_id()}"
        left = _LEFT[self._choices.number(len(_LEFT))]
        for suffix in left:
            store.objects[f"{place}.{suffix}"] = b"of another time"
            store.written_ms[f"{place}.{suffix}"] = began_ms
        if not left:
            store.begin(f"{place}.log", self._dead_process, listed=True, now_ms=began_ms)
        self._tell("orphans come to light", partition, ", ".join(left) or "an upload")


# What becomes of stored segments: they rot, which the quality check should find; a verdict is wrong, either way.


class QualityEvents(EventSource):
    """Of one world. Verdicts here come from unknown rules; those of the quality check are `Runs.verify`."""

    def rots(self) -> None:
        """Nobody says so."""
        row = self._any(failed=False)
        if row is not None:
            self._damage(row)
            self._tell("a stored segment rots", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def fails(self) -> None:
        """Rightly, or not."""
        row = self._any(failed=False)
        if row is not None:
            if self._choices.number(2) == 1:
                self._damage(row)
            self._world.watch.rotten.add(row.segment_id)
            self._world.admin_metadata.record_verdict(_id_of(row), Verdict.FAILED, detail="seen by a verification")
            self._tell("a segment fails", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def passes(self) -> None:
        """Verified again: the verdict was wrong. What the store hides nobody passes."""
        row = self._any(failed=True)
        is_seen = row is not None and row.key("log") not in self._world.store.hidden
        if row is not None and is_seen and self._world.watch.rows.is_right(row):
            metadata, segment_id = self._world.admin_metadata, _id_of(row)
            metadata.record_verification(Verification(segment_id, before=metadata.segment(segment_id)))
            self._tell("a failed segment passes", row.topic_id_partition, f"{row.start_offset}..{row.end_offset}")

    def _any(self, *, failed: bool) -> Row | None:
        found = [
            row
            for row in self._world.watch.rows.known.values()
            if row.state == FINISHED and (row.verdict == Verdict.FAILED) == failed
        ]
        return found[self._choices.number(len(found))] if found else None

    def _damage(self, row: Row) -> None:
        """The last byte is lost, the end is cut off, or the log is gone. What rotted once is never right again."""
        self._world.watch.rotten.add(row.segment_id)
        objects, key = self._world.store.objects, row.key("log")
        content = objects.get(key)
        if not content:
            return
        how = self._choices.number(3)
        if how == 2:
            del objects[key]
        else:
            objects[key] = content[:-1] if how else content[:-1] + b"\0"


def _id_of(row: Row) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(row.topic_id_partition, Uuid.parse(row.segment_id))
