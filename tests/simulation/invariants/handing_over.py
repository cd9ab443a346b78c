"""Handovers: what is held back before anything else, what the switch rests on, what is put back and when."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.model.ownership import LeaseRole
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.remote_cache import FINISHED

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

OVERRIDES: Final = {
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
_TOTAL: Final = ("retention.bytes", "retention.ms")
_DEFAULTS: Final = {**OVERRIDES, "retention.ms": "604800000"}
_ENABLE: Final = "remote.storage.enable"
_STORED: Final = """
    SELECT g.key, g.old_value FROM retention_overrides g JOIN handovers h ON h.handover_id = g.handover_id
    WHERE h.topic_id = ? AND h.open_topic_id IS NOT NULL AND g.restored = 0
"""
_DRIVEN: Final = "SELECT topic_id FROM handovers WHERE driver = ? AND driven_until_ms > ?"
_SEED: Final = """
    SELECT p.partition, p.start_offset, p.end_offset FROM handover_partitions p
    JOIN handovers h ON h.handover_id = p.handover_id WHERE h.topic_id = ? AND h.open_topic_id IS NOT NULL
"""
_OWNER: Final = "SELECT owner FROM topics WHERE topic_id = ?"
_LEASES: Final = """
    SELECT role, run_id, token, partition FROM leases
    WHERE topic_id = ? AND role IN ('copy', 'expire') AND expires_at_ms > ?
"""
_LAST: Final = "restored values are the most recent ones"
_DRIVERS: Final = ("handover", "undoer")


class HandingOver:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._read: dict[tuple[Process, str], tuple[int, dict[str, str]]] = {}
        """What a process was told of a topic's configs last, and when."""
        self._old: dict[tuple[Uuid, str], set[str | None]] = defaultdict(set)
        """What a config may be put back to."""
        self._touched: dict[Uuid, int] = {}
        """Topics whose retention a person changed, and when last."""
        self._set_by_hand: dict[tuple[Uuid, str], set[str | None]] = defaultdict(set)
        self._switched_at: dict[Uuid, int] = {}
        self._step_began: dict[Process, int] = {}
        self._switched: dict[Uuid, str] = {}
        """Who switched remote storage on: a process, or nobody's name for a person."""
        self._known_to: dict[tuple[TopicIdPartition, int], int] = {}
        """By leader epoch."""
        self._named: dict[tuple[Process, str], Uuid] = {}
        """Which topic has a name, as a process was told last."""
        self._asked: dict[tuple[Process, TopicIdPartition], int] = {}
        """The epoch of the leader that a process asked last, in the step that it is at."""
        self._put_back: dict[TopicIdPartition, int] = {}
        """The epoch of the leader that was asked before total retention was put back."""
        self.wanted_local_bytes: dict[Uuid, set[str | None]] = defaultdict(set)

    # What is seen and told.

    def configs_read(self, process: Process, topic: str, own: Mapping[str, str]) -> None:
        self._read[process, topic] = self._world.scheduler.steps, dict(own)

    def brokers_know(self, partition: TopicIdPartition, epoch: int, highest: int | None) -> None:
        """A leader has found out how far the remote log reaches."""
        if highest is not None:
            self._known_to[partition, epoch] = highest

    def topics_read(self, process: Process, topics: Mapping[str, TopicMetadata]) -> None:
        for name, topic_metadata in topics.items():
            self._named[process, name] = topic_metadata.topic_id

    def offsets_read(self, process: Process, partition: TopicIdPartition, epoch: int) -> None:
        self._asked[process, partition] = epoch

    def has_new_leader(self, log: PartitionLog) -> bool:
        """By another one than the leader that was asked before retention was put back, which counts local and remote
        bytes both until it knows better: nobody can keep it from that."""
        asked = self._put_back.get(log.partition)
        return (
            asked is not None and asked < log.leader_epoch and (log.partition, log.leader_epoch) not in self._known_to
        )

    def is_disturbed(self, topic_id: Uuid) -> bool:
        """A person changed its retention, or switched it on."""
        return topic_id in self._touched or self._switched.get(topic_id) == ""

    def switched_by_hand(self, topic_id: Uuid) -> bool:
        return self._switched.get(topic_id) == ""

    # Changes of configs.

    def altered(
        self, topic_id: Uuid, topic: str, before: Mapping[str, str], after: Mapping[str, str], process: Process | None
    ) -> None:
        changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
        if process is None:
            self._by_hand(topic_id, changed, after)
        elif not self._watch.foreign_history and self._named.get((process, topic), topic_id) == topic_id:
            # A topic that is created under the name between a check and the request is nobody's fault.
            for key in sorted(changed):
                if key in OVERRIDES:
                    self._override(topic_id, topic, key, before, after, process)
            if _ENABLE in changed and after.get(_ENABLE) == "true":
                self._switch(topic_id, topic, after, process)
        if _ENABLE in changed and after.get(_ENABLE) == "true":
            self._switched[topic_id] = "" if process is None else process.name
            self._switched_at[topic_id] = self._world.scheduler.steps
            for partition, log in self._world.cluster.logs.items():
                if partition.topic_id == topic_id:
                    self._watch.promises.begin(log)

    def _by_hand(self, topic_id: Uuid, changed: list[str], after: Mapping[str, str]) -> None:
        for key in changed:
            if key in OVERRIDES:
                self._touched[topic_id] = self._world.scheduler.steps
                self._set_by_hand[topic_id, key].add(after.get(key))

    def _override(
        self,
        topic_id: Uuid,
        topic: str,
        key: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        process: Process,
    ) -> None:
        value, old = after.get(key), self._old[topic_id, key]
        _, read = self._read.get((process, topic), (0, {}))
        if value == OVERRIDES[key] and (key in _TOTAL or topic_id not in self._switched):
            stored: dict[str, str | None] = dict(self._world.db.rows(_STORED, str(topic_id)))
            if key not in stored:
                self._watch.broken("old values are stored before retention is overridden", f"{topic}: {key}={value}")
            elif read.get(key) not in {stored[key], value} and before.get(_ENABLE) == after.get(_ENABLE):
                self._watch.broken(_LAST, f"{topic}: {key} was {read.get(key)}, stored is {stored[key]}")
            old.update({before.get(key), read.get(key)} - {OVERRIDES[key]})
            return
        if key in _TOTAL:
            known_values = old | self._set_by_hand[topic_id, key]
            if value not in known_values:
                self._watch.broken("restored values are the old values", f"{topic}: {key}={value}, was {known_values}")
            if read.get(key) not in {value, OVERRIDES[key]}:
                self._watch.broken(_LAST, f"{topic}: {key}={value}, was {read.get(key)} by then")
            if topic_id in self._switched:
                self._require_known(topic_id, topic, key, process)

    def _require_known(self, topic_id: Uuid, topic: str, key: str, process: Process) -> None:
        """Behind the switch a limited retention takes records until the leaders know what is remote. A switch by hand
        may come right before the request."""
        read_at, _ = self._read.get((process, topic), (0, {}))
        if self.switched_by_hand(topic_id) and self._switched_at[topic_id] >= read_at:
            return
        for number, start, end in self._world.db.rows(_SEED, str(topic_id)):
            partition = TopicIdPartition(topic_id, number, topic)
            asked = self._put_back[partition] = self._asked.get((process, partition), -1)
            known = self._known_to.get((partition, asked), -1)
            log = self._world.cluster.logs.get(partition)
            if log is None or log.leading is None or log.unclean:
                continue
            if end >= max(start, log.leading.log_start) and known < end:
                self._watch.broken(
                    "retention is restored when the brokers know what is remote",
                    f"{topic}-{number}: {key} is put back, seeded up to {end}, known is {known}",
                )

    # The switch.

    def _switch(self, topic_id: Uuid, topic: str, configs: Mapping[str, str], process: Process) -> None:
        read_at, _ = self._read.get((process, topic), (0, {}))
        loose = [key for key, value in OVERRIDES.items() if configs.get(key, _DEFAULTS[key]) != value]
        if loose and self._touched.get(topic_id, -1) < read_at:
            self._watch.broken("the switch is made under retention overrides", f"{topic}: {loose}")
        owner = self._world.db.rows(_OWNER, str(topic_id))
        if not owner or owner[0][0] != "handing-over":
            self._watch.broken("nobody copies or expires at the switch", f"{topic}: its owner is {owner}")
        for role, run_id, token, number in self._world.db.rows(
            _LEASES, str(topic_id), self._world.scheduler.database_ms
        ):
            partition = TopicIdPartition(topic_id, number, topic)
            if not run_id.startswith("handover:") and not self._watch.leases.is_idle(partition, LeaseRole(role), token):
                self._watch.broken("nobody copies or expires at the switch", f"{topic}: {run_id} has a lease to {role}")
        for number, start, end in self._world.db.rows(_SEED, str(topic_id)):
            self._require_whole(TopicIdPartition(topic_id, number, topic), start, end)

    def _require_whole(self, partition: TopicIdPartition, start: int, end: int) -> None:
        """What was decided to be handed over is in the topic, from the log start on, and in the store."""
        log = self._world.cluster.logs.get(partition)
        if log is None or log.leading is None or end < start:
            return
        cache = self._world.managers.cache(partition)
        begin = max(start, log.leading.log_start)
        to = cache.finished_to(begin)
        if to <= end and begin <= end:
            self._watch.broken(
                "only complete partitions are switched on",
                f"{partition}: {start}..{end} is handed over, published to {to}",
            )
        for known in cache.live():
            row = self._watch.rows.known.get(known.segment_id)
            is_known = known.state == FINISHED and row is not None and known.segment_id not in self._watch.rotten
            if is_known and row is not None and not self._watch.rows.is_right(row):
                self._watch.broken(
                    "only complete partitions are switched on", f"{row} is not in the store as it was written"
                )

    # What the platform does meanwhile.

    def step_begins(self, process: Process) -> None:
        """Of a handover: it looks whether somebody has switched by hand."""
        self._step_began[process] = self._world.scheduler.steps
        for place in [one for one in self._asked if one[0] is process]:
            del self._asked[place]

    def intended(self, process: Process, partition: TopicIdPartition) -> None:
        """A record is to be published."""
        switched_at = self._switched_at.get(partition.topic_id)
        is_there = partition.topic_id in self._world.cluster.configs
        if is_there and switched_at is not None and switched_at < self._step_began.get(process, 0):
            self._watch.broken("a switch by hand is followed", f"{partition}: {process.name} goes on publishing")

    def copy_began(self, partition: TopicIdPartition, process: Process) -> None:
        """By a handover: retention overrides hold, unless a person lifted them, or another driver put them back."""
        if not process.name.startswith(_DRIVERS[0]) or self._watch.foreign_history:
            return
        driven = self._world.db.rows(_DRIVEN, process.name, self._world.scheduler.database_ms)
        configs = self._world.cluster.configs.get(partition.topic_id)
        if configs is None or (str(partition.topic_id),) not in driven or partition.topic_id in self._touched:
            return
        loose = [key for key, value in OVERRIDES.items() if configs.get(key, _DEFAULTS[key]) != value]
        if loose and partition.topic_id not in self._switched:
            self._watch.broken("a handover overrides retention before it copies", f"{partition}: {loose}")

    def finished(self, row: Any) -> None:
        """A segment became FINISHED: not behind the switch of a handover."""
        switched_by = self._switched_by(row)
        if switched_by:
            self._watch.broken("never two copy or expire", f"{row} is FINISHED, {switched_by} switched before")

    def deletion_began(self, row: Any) -> None:
        """Of a FINISHED segment: not behind the switch, and not of what was published."""
        switched_by = self._switched_by(row)
        if switched_by:
            self._watch.broken("never two copy or expire", f"{row} is deleted, {switched_by} switched before")

    def _switched_by(self, row: Any) -> str:
        """The handover that has switched its topic on; of a topic that is gone, brokers know nothing any more."""
        topic_id = Uuid.parse(row.topic_id)
        is_excused = self._watch.foreign_history or topic_id in self._world.cluster.removed
        return "" if is_excused else self._switched.get(topic_id, "")

    # The end.

    def held_back(self) -> list[Uuid]:
        """Topics whose retention stands where a handover has put it, and nobody else."""
        return [
            topic_id
            for topic_id, configs in self._world.cluster.configs.items()
            if not self._watch.foreign_history
            and any(
                configs.get(key) == value and self._old.get((topic_id, key)) and topic_id not in self._touched
                for key, value in OVERRIDES.items()
            )
        ]

    def require_restored(self) -> None:
        """Nothing holds a topic's retention back any more, unless its handover is still open."""
        held = {
            row[0]
            for row in self._world.db.rows(
                "SELECT topic_id FROM handovers WHERE state IN ('active', 'stopped', 'undoing')"
            )
        }
        for topic_id, configs in self._world.cluster.configs.items():
            if str(topic_id) in held or self._watch.foreign_history:
                continue
            for key in OVERRIDES:
                old = self._old.get((topic_id, key))
                may_be = (old or set()) | self._set_by_hand[topic_id, key]
                if key == "local.retention.bytes":
                    may_be = may_be | self.wanted_local_bytes[topic_id]
                if old and configs.get(key) not in may_be:
                    self._watch.broken(
                        "restored values are the old values",
                        f"{self._world.cluster.names[topic_id]}: {key} is {configs.get(key)} in the end, was {may_be}",
                    )
