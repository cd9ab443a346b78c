"""When the faults stop, a handover that somebody carries on ends, or says to a person why it does not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from include.tiering.handover.contract import PERSON_MS, Handover, LocalRetention, forgotten_handovers
from include.tiering.handover.rules import HandoverState
from include.tiering.model.segments import Uuid
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.runs import Runs

if TYPE_CHECKING:
    from tests.simulation.world.world import World

_DRIVES: Final = 6
_LEASE_AND_MORE_MS: Final = 31_000
_ENDS: Final = "a handover ends, or waits for a person with a reason"


class HandoverClosing:
    """Of one world."""

    def __init__(
        self,
        world: "World",
        runs: Runs,
        until_idle: Callable[[str], bool],
        rounds: Callable[[Callable[[], None], str], bool],
    ) -> None:
        self._world = world
        self._runs = runs
        self._events = HandoverEvents(world, runs)
        self._until_idle = until_idle
        self._rounds = rounds

    def run(self) -> bool:
        """False once something broke."""
        self._require_named()
        for log in self._world.cluster.logs.values():
            log.transactions.clear()
            log.mark_stable()
        self._world.cluster.changed()
        for _ in range(_DRIVES):
            if not self._carry_on():
                return False
            if not self._left():
                break
            # What stops a partition may be below its log start, and goes.
            if not self._rounds(self._runs.start_expire_run, "all that expires goes"):
                return False
        for one in self._left():
            self._require_reason(one)
        if not self._undo():
            return False
        self._world.watch.handing_over.require_restored()
        for log in self._world.cluster.logs.values():
            self._world.watch.promises.require_readable(log)
        return self._world.watch.violation is None

    def _left(self) -> list[Handover]:
        return list(self._world.admin_handovers.open_handovers())

    def _carry_on(self) -> bool:
        """Each once, by a person who agrees to everything."""
        for one in self._left():
            self._events.approve_handover()
            self._events.carry_on(one.topic, LocalRetention(), resume=True)
            if not self._until_idle(_ENDS):
                return False
            self._world.scheduler.now_ms += _LEASE_AND_MORE_MS
        return True

    def _require_named(self) -> None:
        """Whatever is held back belongs to a handover that the watchdog names before long."""
        then_ms = self._world.scheduler.now_ms + PERSON_MS + _LEASE_AND_MORE_MS + 1
        named = {one.handover.topic_id for one in forgotten_handovers(self._left(), then_ms)}
        for topic_id in self._world.watch.handing_over.held_back():
            if topic_id not in named:
                name = self._world.cluster.names[topic_id]
                self._world.watch.broken(
                    "retention overrides are never forgotten", f"{name} ({topic_id}) is held back by nobody"
                )

    def _require_reason(self, handover: Handover) -> None:
        logs = self._world.cluster.logs.values()
        is_lost = any(log.unclean for log in logs if log.partition.topic_id == handover.topic_id)
        if not handover.detail or (handover.state is HandoverState.ACTIVE and not is_lost):
            self._world.watch.broken(
                _ENDS, f"{handover.topic} is {handover.state} at {handover.step}: {handover.detail}"
            )
        elif "ForeignRecordError" in handover.detail and not self._others_wrote(handover.topic_id):
            self._world.watch.broken("nothing of ours is taken for somebody else's", handover.detail)
        elif not self._is_excused(handover.topic_id):
            self._world.watch.broken("a handover without an obstacle ends", f"{handover.step}: {handover.detail}")

    def _is_excused(self, topic_id: Uuid) -> bool:
        """Something happened that a person has to decide about."""
        watch, logs = self._world.watch, self._world.cluster.logs
        of_topic = [log for partition, log in logs.items() if partition.topic_id == topic_id]
        return (
            not of_topic
            or watch.foreign_history
            or watch.handing_over.is_disturbed(topic_id)
            or bool(watch.rotten)
            or self._world.tempers.store_damages
            or any(log.unclean or log.lost_locally or self._has_expired(log) for log in of_topic)
            or any(self._is_deleted_here_alone(log) for log in of_topic)
        )

    def _others_wrote(self, topic_id: Uuid) -> bool:
        """Brokers, or we ourselves before a restore."""
        watch = self._world.watch
        return watch.foreign_history or watch.publishing.have_others_written(str(topic_id))

    def _has_expired(self, log: PartitionLog) -> bool:
        """What the broker still has is past our retention, which is shorter."""
        topic = log.partition.topic
        return any(
            name == topic and (retention_ms is not None or retention_bytes is not None)
            for _, name, retention_ms, retention_bytes in self._world.settings_history
        )

    def _is_deleted_here_alone(self, log: PartitionLog) -> bool:
        """Somebody raised our log start above the broker's."""
        place = (str(log.partition.topic_id), log.partition.partition)
        return log.leading is not None and self._world.watch.rows.log_starts.get(place, 0) > log.leading.log_start

    def _undo(self) -> bool:
        for one in self._left():
            if one.state is not HandoverState.PARKED:
                self._events.undo_handover()
                if not self._until_idle(_ENDS):
                    return False
        return True
