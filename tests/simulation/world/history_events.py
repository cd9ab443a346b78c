"""What a person decides where a source has another history than what is archived, or has lost what comes next."""

from collections.abc import Callable
from typing import Any, Final

from include.tiering.copying.plan import HeldBack, HeldBackPartition
from include.tiering.model.ownership import LeaseRole
from tests.simulation.kernel.scheduler import Process, Task
from tests.simulation.world.brokers import PartitionLog, ReplicaLog, SegmentFile
from tests.simulation.world.event_source import EventSource

_CALLS: Final = ("metadata.update_segment", "source.open_segment")
_RECORDS: Final = "metadata.record_divergence"
_MOST_HELD_STEPS: Final = 200


class HistoryEvents(EventSource):
    """Of one world, by what the last plan said: it may be an old one when somebody answers."""

    def events(self) -> tuple[Callable[[], None], ...]:
        """All of them."""
        return (
            self.another_history,
            self.follow,
            self.skip_what_is_named,
            self.decided_meanwhile,
            self.recorded_late,
            self.whole_replica_leads,
        )

    def another_history(self) -> None:
        """A broker without the last of what is remote leads and writes on; at times its log begins behind the archive's
        end soon. And the next run of copies sees it."""
        log, watch = self._log(), self._world.watch
        highest = -1 if log is None else watch.highest_copied(log.partition)
        if log is None or highest < 0:
            return
        new = self._replica(log)
        log.truncate(new, max(new.log_start, new.files[0].base_offset, highest - self._choices.number(6)))
        log.elect(new.broker_id, clean=False)
        log.unclean = True
        log.produce(4 + self._choices.number(14))
        if self._choices.number(3) != 0:
            log.isr = list(log.brokers)
            log.replicate()
        if self._choices.number(4) == 3:
            offset = min(highest + self._choices.number(5), log.high_watermark)
            for replica in log.replicas.values():
                log.raise_log_start(replica, min(offset, replica.end))
        for replica in log.replicas.values():
            log.checkpoint(replica)
        self._world.cluster.changed()
        self._tell("a source has another history", log.partition, f"leader {log.leader}, epoch {log.leader_epoch}")
        self._runs.start_copy_run()

    def follow(self) -> None:
        """The archive is to go on with its source's history."""
        asked = list(self._runs.asked)
        if asked:
            self.decide(self._runs.asked.pop(asked[self._choices.number(len(asked))]))

    def skip_what_is_named(self) -> None:
        """The archive is to go on without what no source has any more."""
        asked = [held for held in self._runs.held_back if held.follow_from is None and is_asked(held)]
        if asked:
            self.decide(asked[self._choices.number(len(asked))])

    def decided_meanwhile(self) -> None:
        """There is more to copy. When a copier gets so far, its source goes on with another history, and a person
        follows it before the copier goes on: it is about to record FINISHED, or to open what comes next."""
        world, label = self._world, _CALLS[self._choices.number(len(_CALLS))]

        def comes(process: Process, found: str) -> None:
            log, task = self._copied_by(process), world.scheduler.current
            if found == label and log is not None and task is not None and self._loses_what_is_remote(log):
                world.at_call = lambda *_: None
                self._decide_before(task)

        world.at_call = comes
        for log in world.cluster.logs.values():
            self._writes_on(log, 12)
        self._tell("there is more to copy", "", f"until {label}")
        self._runs.start_copy_run()

    def _copied_by(self, process: Process) -> PartitionLog | None:
        """The log whose lease it got last, if it copies at all."""
        newest, logs = self._world.watch.leases.newest, self._world.cluster.logs.values()
        return next((log for log in logs if newest(log.partition, LeaseRole.COPY) is process), None)

    def _loses_what_is_remote(self, log: PartitionLog) -> bool:
        """Its leader crashes, loses the last of what is remote and writes on, in segments as before; if it can."""
        leader, highest = log.leading, self._world.watch.highest_copied(log.partition)
        first = -1 if leader is None else max(leader.log_start, leader.files[0].base_offset)
        if leader is None or highest < first:
            return False
        end = leader.end
        log.truncate(leader, max(first, highest - self._choices.number(6)))
        log.elect(leader.broker_id, clean=False)
        log.unclean = True
        log.produce(end - leader.end + 1 + self._choices.number(4))
        for replica in log.replicas.values():
            log.checkpoint(replica)
        self._world.cluster.changed()
        self._tell("a leader goes on with another history", log.partition, f"epoch {log.leader_epoch}")
        return True

    def recorded_late(self) -> None:
        """Somebody who saw a divergence takes so long to record it that a person has decided about it."""
        tasks = [task for process in self._world.alive() for task in process.tasks]
        found = [task for task in tasks if task.label == _RECORDS and not task.done]
        if found:
            waiting = found[self._choices.number(len(found))]
            self._tell("a divergence is recorded late", waiting.process.name)
            self._decide_before(waiting)

    def whole_replica_leads(self) -> None:
        """A topic was compacted for a while: the leader's log cleaner took some of what would be copied next, and a
        person goes on without; then a broker leads whose own log cleaner never came to it."""
        log = self._log()
        if log is None or log.leading is None:
            return
        self._writes_on(log, 12)
        leader, highest = log.leading, self._world.watch.highest_copied(log.partition)
        files = [one for one in leader.files[:-1] if one.end > highest + 1 and len(one.records) > 1]
        brokers = [one for one in log.isr if one != log.leader and files and _has_whole(log.replicas[one], files[0])]
        if not brokers or files[0].end > log.last_stable_offset:
            return
        broker = brokers[self._choices.number(len(brokers))]
        self._world.cluster.configs[log.partition.topic_id]["cleanup.policy"] = "delete"
        log.clean(leader, files[0], files[0].records[::2])
        self._world.cluster.changed()
        self._tell("a log cleaner runs", log.partition, f"on {log.leader}, from {files[0].base_offset}")

        def leads() -> None:
            if log.partition in self._world.cluster.logs and broker in log.isr:
                log.elect(broker, clean=True)
                self._writes_on(log, 4)
                self._tell("a broker leads that has all of it", log.partition, f"{broker}")
                self._runs.start_copy_run()

        def body(app: Any, process: Process) -> None:
            for held in app.copying.plan("asked", dry_run=True).held_back:
                if held.topic_id_partition == log.partition and held.reason is HeldBack.COMPACTED and held.hole:
                    self._skip(app, held)
                    leads()

        self._world.start("operator", body)

    def _writes_on(self, log: PartitionLog, count: int) -> None:
        log.produce(count)
        log.replicate()
        for replica in log.replicas.values():
            log.checkpoint(replica)
        self._world.cluster.changed()

    def _decide_before(self, waiting: Task) -> None:
        """Whoever decides asks for a plan, and follows what it names."""
        waiting.held_until = self._world.scheduler.steps + _MOST_HELD_STEPS

        def body(app: Any, _process: Process) -> None:
            try:
                for held in app.copying.plan("asked", dry_run=True).held_back:
                    if held.follow_from is not None:
                        self._follow(app, held)
            finally:
                waiting.held_until = 0

        self._world.start("operator", body)

    def decide(self, held: HeldBackPartition) -> None:
        """As what holds it back asks."""
        partition, from_offset = held.topic_id_partition, held.follow_from

        def decides(app: Any, _process: Process) -> None:
            (self._skip if from_offset is None else self._follow)(app, held)

        self._world.start("operator", decides)
        if from_offset is None:
            self._tell("what is named is skipped", partition, str(held.reason))
        else:
            self._tell("the source is followed", partition, f"from {from_offset}")

    def _follow(self, app: Any, held: HeldBackPartition) -> None:
        partition = held.topic_id_partition
        topic_id = str(partition.topic_id)
        planned = app.copying.plan_follow(partition.topic, partition.partition, held.follow_from, topic_id)
        app.copying.follow_source(planned, reason="lost elsewhere, too", author="operator")

    def _skip(self, app: Any, held: HeldBackPartition) -> None:
        partition = held.topic_id_partition
        planned = app.copying.plan_skip(partition.topic, partition.partition, str(partition.topic_id))
        app.copying.skip_offsets(planned, reason="lost", author="operator")


def is_asked(held: HeldBackPartition) -> bool:
    """Whether a person can end it by a decision: failed segments may be given up though the source still has them, if
    their new copies fail each time."""
    return held.follow_from is not None or held.hole is not None or bool(held.lost)


def _has_whole(replica: ReplicaLog, wanted: SegmentFile) -> bool:
    """All segments that the offsets of another replica's are in."""
    files = [file for file in replica.files if file.base_offset < wanted.end and wanted.base_offset < file.end]
    is_there = bool(files) and files[0].base_offset <= wanted.base_offset and files[-1].end >= wanted.end
    return is_there and not any(file.is_compacted for file in files)
