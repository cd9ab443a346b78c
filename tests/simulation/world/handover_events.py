"""People who publish a topic, hand it over, approve, undo, switch by hand and change configs in the middle; brokers
that tier it."""

from typing import Any, Final

from include.tiering.errors import BrokersRefusedError
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.drive import carry_on, undo_handover
from include.tiering.handover.rules import HandoverStep
from include.tiering.metadata_sync.service import PublishedPartition, publish_partitions
from include.tiering.model.ownership import TopicOwner
from tests.simulation.kernel.choices import Menu
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.admin import alter
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World

_WANTED: Final = Menu((None, 50), (60, 25), (0, 25))
_RETENTION: Final = Menu(
    ({"retention.bytes": "300"}, 30),
    ({"retention.bytes": None}, 20),
    ({"local.retention.bytes": "60"}, 20),
    ({"local.retention.bytes": None}, 10),
    ({"retention.ms": None}, 10),
    ({"retention.ms": "600000"}, 10),
)
_CONFIGS: Final = Menu(
    ({}, 30),
    ({"retention.bytes": "400"}, 30),
    ({"retention.bytes": "900", "local.retention.bytes": "100"}, 20),
    ({"local.retention.bytes": "60"}, 20),
)
_MOST_HANDOVERS: Final = 3
_PREPARED: Final = Menu(
    (None, 12),
    (HandoverStep.OVERRIDES, 10),
    (HandoverStep.COPY, 12),
    (HandoverStep.APPROVAL, 16),
    (HandoverStep.FENCE, 14),
    (HandoverStep.RECHECK, 20),
    (HandoverStep.PUBLISH, 14),
    (HandoverStep.SWITCH, 16),
    (HandoverStep.WATCH, 8),
    (HandoverStep.RETENTION, 10),
)


class HandoverEvents(EventSource):
    """Of one world."""

    def __init__(self, world: World, runs: Runs) -> None:
        super().__init__(world, runs)
        self.published: list[PublishedPartition] = []
        """What the last publisher said."""

    def events(self) -> tuple[Any, ...]:
        """How often each happens is a matter of what the schedule is about."""
        return (
            self.publish,
            self.late_record,
            self.owner_hands_over,
            self.hand_over,
            self.approve_handover,
            self.undo_handover,
            self.switch_by_hand,
            self.configs_change,
            self.leader_copies,
            self.leader_expires,
            self.disks_are_cleared,
        )

    def topic_configs(self) -> None:
        """What a topic has of its own from the beginning."""
        for configs in self._world.cluster.configs.values():
            own: Any = self._choices.pick(_CONFIGS)
            configs.update(own)

    # Publishing alone.

    def publish(self) -> None:
        """By command, whoever else does."""
        topic = self._name()
        if topic is None or len(self._world.alive("publisher")) >= 2:
            return

        def body(app: Any, process: Process) -> None:
            log_starts = app.publication._log_starts(topic, None)
            app.ownership.claim()
            published = publish_partitions(
                app.adapters.publisher,
                log_starts,
                run_id="publish",
                batch_id=process.name,
                on_progress=lambda *_: None,
            )
            self.published = list(published)
            for one in published:
                self._world.note(process.name, "published", f"{one.records} records", one.error or "all")

        self._world.start("publisher", body)
        self._tell("a topic is published", topic)

    def late_record(self) -> None:
        if self._world.topic.land_late():
            self._tell("a late record arrives", "")

    # Hand-overs.

    def hand_over(self) -> None:
        """Begin one, or go on with it."""
        topic = self._name()
        if topic is None or len(self._world.alive("handover")) >= 2:
            return
        wanted: Any = self._choices.pick(_WANTED)
        self.carry_on(topic, LocalRetention(local_retention_bytes=wanted), resume=self._choices.number(3) == 1)
        self._tell("a handover is carried on", topic)

    def carry_on(self, topic: str, wanted: LocalRetention, *, resume: bool, until: Any = None) -> None:
        """By a process of its own."""

        def body(app: Any, process: Process) -> None:
            found = app.handover.latest_of(topic)
            if found is None or found.state.has_ended:
                if len(self._world.db.rows("SELECT 1 FROM handovers")) >= _MOST_HANDOVERS:
                    return
                found = app.handover.begin(topic, wanted, author="operator")
            self._note_wanted(found)

            def stage(handover: Handover) -> None:
                process.stage = str(handover.step)
                self._world.watch.handing_over.step_begins(process)
                self._world.coverage[f"step of a handover: {handover.step}"] += 1

            ended = carry_on(
                app.handover_ports, found.handover_id, process.name, resume=resume, until=until, on_step=stage
            )
            self._world.note(process.name, "carried on", f"{ended.state} at {ended.step}: {ended.detail}", "")

        self._world.start("handover", body)

    def approve_handover(self) -> None:
        for handover in self._world.admin_handovers.open_handovers():
            if handover.plan_hash is not None and handover.approval is None:
                self._world.admin_handovers.approve(handover.handover_id, handover.plan_hash, author="operator")
                self._tell("a handover is approved", handover.topic)
                return

    def undo_handover(self) -> None:
        open_ones = self._world.admin_handovers.open_handovers()
        if not open_ones or self._world.alive("undoer"):
            return
        handover = open_ones[self._choices.number(len(open_ones))]

        def body(app: Any, process: Process) -> None:
            undone = undo_handover(app.handover_ports, handover.handover_id, process.name)
            self._world.note(process.name, "undone", str(undone.ends_as), "")

        self._world.start("undoer", body)
        self._tell("a handover is undone", handover.topic)

    def switch_by_hand(self) -> None:
        topic = self._name()
        if topic is not None and self._by_hand(topic, {"remote.storage.enable": "true"}):
            self._tell("remote storage is switched on by hand", topic)

    def configs_change(self) -> None:
        topic = self._name()
        changes: Any = self._choices.pick(_RETENTION)
        if topic is not None and self._by_hand(topic, changes):
            self._tell("a topic's retention is changed", topic, str(changes))

    def _by_hand(self, topic: str, changes: dict[str, str | None]) -> bool:
        try:
            alter(self._world, topic, changes, None)
        except BrokersRefusedError:
            return False
        return True

    def _note_wanted(self, handover: Handover) -> None:
        wanted = handover.wanted.local_retention_bytes
        if wanted is not None:
            self._world.watch.handing_over.wanted_local_bytes[handover.topic_id].add(str(wanted))

    def _name(self) -> str | None:
        names = sorted(self._world.cluster.names.values())
        return names[self._choices.number(len(names))] if names else None

    # Brokers that tier.

    def leader_copies(self) -> None:
        log = self._tiered()
        if log is not None:
            self._world.managers.copy(log)
            self._tell("a broker's copy task runs", log.partition)

    def leader_expires(self) -> None:
        log = self._tiered()
        if log is not None:
            self._world.managers.expire(log)
            self._tell("a broker's expiration runs", log.partition)

    def disks_are_cleared(self) -> None:
        log = self._tiered()
        if log is not None:
            self._world.managers.delete_local(log)
            self._tell("a broker's local retention runs", log.partition)

    def _tiered(self) -> PartitionLog | None:
        logs: list[PartitionLog] = self._world.managers.tiered()
        return logs[self._choices.number(len(logs))] if logs else None

    # What is done in peace.

    def owner_hands_over(self) -> None:
        """Without a handover: what is remote may be published."""
        registry = self._world.admin_registry
        for partition in self._world.watch.partitions():
            if registry.owner(partition.topic_id) is TopicOwner.PLATFORM:
                registry.set_owner(
                    partition.topic_id,
                    partition.topic,
                    TopicOwner.HANDING_OVER,
                    expected=TopicOwner.PLATFORM,
                    author="operator",
                )

    def prepare(self, runs_quietly: Any) -> None:
        """A handover that has got somewhere before anything happens."""
        names = sorted(self._world.cluster.names.values())
        until: Any = self._choices.pick(_PREPARED)
        if until is None:
            return
        for _ in range(2):
            self.carry_on(names[0], LocalRetention(), resume=False, until=until)
            runs_quietly()
            self.approve_handover()
