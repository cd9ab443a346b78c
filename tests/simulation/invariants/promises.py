"""What consumers were promised, through the switch and after it: every record that retention keeps can be read."""

from collections import defaultdict
from typing import TYPE_CHECKING

from include.tiering.model.segments import TopicIdPartition
from tests.simulation.world.admin import TOPIC_DEFAULTS
from tests.simulation.world.brokers import PartitionLog
from tests.simulation.world.records import size_of
from tests.simulation.world.remote_cache import FINISHED, Known
from tests.simulation.world.remote_managers import epoch_of

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch


class Promises:
    """Of brokers that tier, in one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._from: dict[TopicIdPartition, int] = {}
        self._passed: dict[TopicIdPartition, set[str]] = defaultdict(set)
        """Remote segments below a log start that somebody raised while a limited retention was in force."""

    def begin(self, log: PartitionLog) -> None:
        """What is there when the brokers begin to tier it."""
        if log.leading is not None:
            self._from[log.partition] = log.leading.log_start

    def released(self, log: PartitionLog) -> None:
        """Somebody deleted records. While retention is limited nobody can keep a broker from counting what it passed
        (`_passed_bytes`). While a handover holds it back, nothing is excused: there is time until it goes back."""
        if log.partition in self._from and log.leading is not None:
            before = self._from[log.partition]
            if int(self._configs(log)["retention.bytes"]) >= 0:
                passed = [one for one in self._finished(log) if before <= one.end_offset < log.leading.log_start]
                self._passed[log.partition].update(one.segment_id for one in passed)
            self.begin(log)

    def raised_to_first_remote(self, log: PartitionLog, offset: int) -> None:
        """A leader found that the remote log begins there."""
        if offset > self._from.get(log.partition, 0) and not self._is_excused(log):
            self._watch.broken(
                "the switch deletes nothing", f"{log.partition}: the log start rises from {self._from} to {offset}"
            )

    def raised_by_retention(self, log: PartitionLog, offset: int) -> None:
        """A leader expires what is below."""
        configs = self._configs(log)
        handing_over = self._watch.handing_over
        if (
            self._is_excused(log)
            or handing_over.is_disturbed(log.partition.topic_id)
            or handing_over.has_new_leader(log)
        ):
            self._from[log.partition] = offset
            return
        retention_ms, retention_bytes = int(configs["retention.ms"]), int(configs["retention.bytes"])
        going = [time for (_, at), time in log.timestamps.items() if self._from[log.partition] <= at < offset]
        by_time = retention_ms >= 0 and max(going, default=0) <= self._world.scheduler.now_ms - retention_ms
        kept = self._kept_bytes(log, offset)
        if not by_time and not 0 <= retention_bytes <= kept + self._passed_bytes(log):
            self._watch.broken(
                "what is within retention stays",
                f"{log.partition}: the log start rises to {offset}, {kept} bytes stay, retention.bytes"
                f" {retention_bytes}, retention.ms {retention_ms}",
            )
        self._from[log.partition] = offset

    def require_readable(self, log: PartitionLog) -> None:
        """From the brokers, by the record."""
        leader = log.leading
        if leader is None or log.partition not in self._from or self._is_excused(log):
            return
        for offset in range(self._from[log.partition], leader.files[0].base_offset):
            if self._world.managers.fetch(log, offset) is None and not self._is_rotten(log, offset):
                self._watch.broken(
                    "what retention keeps is readable",
                    f"{log.partition}: offset {offset} of epoch {epoch_of(leader, offset)}",
                )
                return

    def _kept_bytes(self, log: PartitionLog, offset: int) -> int:
        """Remote, and local of what is not remote."""
        remote = self._finished(log)
        highest = max((one.end_offset for one in remote), default=-1)
        assert log.leading is not None
        local = [record for record in log.leading.records() if record[1] > max(highest, offset - 1)]
        return sum(one.size_bytes for one in remote if one.end_offset >= offset) + size_of(log.partition, local)

    def _passed_bytes(self, log: PartitionLog) -> int:
        """What a broker counts though its log start has passed it: its expiration sums up first, and then what lies
        below the log start goes without making the excess less (ADR 22)."""
        passed = self._passed[log.partition]
        return sum(one.size_bytes for one in self._finished(log) if one.segment_id in passed)

    def _finished(self, log: PartitionLog) -> list[Known]:
        return [one for one in self._world.managers.cache(log.partition).live() if one.state == FINISHED]

    def _configs(self, log: PartitionLog) -> dict[str, str]:
        return {**TOPIC_DEFAULTS, **self._world.cluster.configs[log.partition.topic_id]}

    def _is_rotten(self, log: PartitionLog, offset: int) -> bool:
        """What answers for it was damaged in the store."""
        assert log.leading is not None
        epoch = epoch_of(log.leading, offset)
        known = None if epoch is None else self._world.managers.cache(log.partition).lookup(epoch, offset)
        return known is not None and known.segment_id in self._watch.rotten

    def _is_excused(self, log: PartitionLog) -> bool:
        return log.unclean or self._watch.foreign_history
