"""What must hold at the end of a schedule."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import FindingState
from include.tiering.audit.store import active_guards_of
from include.tiering.copying.plan import HeldBack
from include.tiering.database.transactions import writing
from include.tiering.database.unread_records import clear_unread
from include.tiering.errors import StateConflictError
from include.tiering.handover.contract import PERSON_MS, Handover, LocalRetention, forgotten_handovers
from include.tiering.handover.rules import HandoverState
from include.tiering.metadata_sync.plan_publication import PublicationPlan
from include.tiering.model.segments import Uuid
from tests.simulation.invariants.rows import FINISHED
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.history_events import HistoryEvents, is_asked
from tests.simulation.world.runs import Runs
from tests.simulation.world.sides import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.kernel.scheduler import Process
    from tests.simulation.world.world import World


# Partitions that wait for a person: when the faults stop, somebody decides all that plans ask about, and then
# nothing waits for a decision any more.

_ROUNDS = 8
"""A decision may bring to light what is behind it."""
_WHAT = "work continues when a person has decided"
_OTHERS = {
    HeldBack.NOT_ELIGIBLE,
    HeldBack.NOT_OURS,
    HeldBack.PAST_RETENTION,
    HeldBack.STORE_IN_DOUBT,
    HeldBack.COPY_IN_DOUBT,
}


class DecisionClosing:
    """By what each plan asks."""

    def __init__(self, world: "World", runs: Runs, until_idle: Callable[[str], bool], rounds: Callable[..., bool]):
        self._world = world
        self._runs = runs
        self._until_idle = until_idle
        self._rounds = rounds

    def run(self) -> bool:
        """Whether nothing broke on the way. Leaders write on, so that each has records under its own epoch."""
        for log in self._world.cluster.logs.values():
            log.produce(1)
            log.replicate()
            for replica in log.replicas.values():
                log.checkpoint(replica)
        self._world.cluster.changed()
        events = HistoryEvents(self._world, self._runs)
        for _ in range(_ROUNDS):
            if not self._copied():
                return False
            asked = [held for held in self._runs.held_back if is_asked(held)]
            if not asked:
                break
            for held in asked:
                events.decide(held)
                if not self._until_idle(_WHAT):
                    return False
        for held in self._runs.held_back:
            if held.reason not in _OTHERS and not self._world.watch.foreign_history:
                self._world.watch.broken(_WHAT, f"{held.topic_id_partition}: {held}")
                return False
        return True

    def _copied(self) -> bool:
        """All that can be. What stops a partition and lies below our log start is nobody's question: it expires."""
        if not self._rounds(self._runs.start_copy_run, "all eligible work finishes"):
            return False
        if all(held.reason is not HeldBack.STOPPED for held in self._runs.held_back):
            return True
        return self._rounds(self._runs.start_expire_run, "all that expires goes") and self._rounds(
            self._runs.start_copy_run, "all eligible work finishes"
        )


# A database that an audit found set back: when the faults stop, a person clears the guard, and things expire again.

_GUARD_ROUNDS = 6
_COMPLETE = (FindingKind.ADOPTABLE, FindingKind.DUPLICATE)


class GuardClosing:
    """Accepts what the database has forgotten, as who does not want to adopt it."""

    def __init__(self, world: "World", until_idle: Callable[[str], bool]) -> None:
        self._world = world
        self._until_idle = until_idle

    def run(self) -> bool:
        """Whether nothing broke on the way."""
        what = "a guard is cleared when all is accepted"
        for number in range(_GUARD_ROUNDS):
            if not self._stands():
                return True
            self._world.start("clearer", partial(_clear, number=number))
            if not self._until_idle(what):
                return False
        if self._stands():
            self._world.watch.broken(what, f"not after {_GUARD_ROUNDS} audits")
            return False
        return True

    def _stands(self) -> bool:
        with self._world.side.db.engine.connect() as connection:
            return bool(active_guards_of(connection, CLUSTER_ID))


def _clear(app: Any, _process: "Process", number: int) -> None:
    app.audit.run(f"before-{number}")
    complete = [one for one in app.audit.findings(f"before-{number}") if one.finding.kind in _COMPLETE]
    app.adapters.stores.audits.accept(
        [one.finding_id for one in complete if one.state is FindingState.OPEN], author="operator"
    )
    app.audit.run(f"after-{number}")
    try:
        app.adapters.stores.audits.declare_nothing_published(author="operator")
    except StateConflictError:
        # Segments were published: a person ingests. No schedule does, so the guard goes as after an ingestion.
        with writing(app.adapters.engine) as connection:
            clear_unread(connection, CLUSTER_ID)


# When the faults stop, everything that brokers could be told is told, or a publisher says why not.

_PUBLISHED: Final = "everything that can be published is published"
_LEASE_AND_MORE_MS: Final = 61_000
_REFUSAL: Final = "PublicationRefusedError"
_FOREIGN: Final = "ForeignRecordError"


class PublicationClosing:
    """Of one world."""

    def __init__(self, world: "World", runs: Runs, until_idle: Callable[[str], bool]) -> None:
        self._world = world
        self._events = HandoverEvents(world, runs)
        self._until_idle = until_idle

    def run(self) -> None:
        """Whoever has something to publish publishes it, twice at most."""
        for _ in range(2):
            self._events.published.clear()
            self._events.owner_hands_over()
            self._events.publish()
            if not self._until_idle(_PUBLISHED):
                return
            self._world.scheduler.now_ms += _LEASE_AND_MORE_MS
        for one in self._events.published:
            is_foreign = one.error == _FOREIGN and self._world.watch.foreign_history
            if one.error not in (None, _REFUSAL) and not is_foreign:
                self._world.watch.broken(_PUBLISHED, f"{one.topic_id_partition}: {one.error}: {one.message}")
            if one.error is None and one.plan is not None:
                self._require_published(one.plan)

    def _require_published(self, plan: PublicationPlan) -> None:
        """Everything that passed, up to where something is withheld."""
        partition, watch = plan.topic_id_partition, self._world.watch
        place = (str(partition.topic_id), partition.partition)
        passed = [row for row in watch.rows.known.values() if row.place == place and row.state == FINISHED]
        to = max((row.end_offset for row in passed if row.verdict == "passed"), default=-1)
        known = self._world.managers.cache(partition).live()
        published_to = max((one.end_offset for one in known if one.state == FINISHED), default=-1)
        log = self._world.cluster.logs.get(partition)
        is_below = log is not None and log.leading is not None and to < log.leading.log_start
        if plan.withheld is None and published_to < to and not is_below:
            watch.broken(_PUBLISHED, f"{partition}: it has segments up to {to} that passed, told is {published_to}")


# When the faults stop, a handover that somebody carries on ends, or says to a person why it does not.

_DRIVES: Final = 6
_HANDOVER_LEASE_AND_MORE_MS: Final = 31_000
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
            self._world.scheduler.now_ms += _HANDOVER_LEASE_AND_MORE_MS
        return True

    def _require_named(self) -> None:
        """Whatever is held back belongs to a handover that the watchdog names before long."""
        then_ms = self._world.scheduler.now_ms + PERSON_MS + _HANDOVER_LEASE_AND_MORE_MS + 1
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
