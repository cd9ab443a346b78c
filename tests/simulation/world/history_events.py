"""What a person decides where a source has another history than what is archived, or has lost what comes next."""

from collections.abc import Callable
from typing import Any

from include.tiering.tasks.copy_plan import HeldBackPartition
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.event_source import EventSource


class HistoryEvents(EventSource):
    """Of one world, by what the last plan said: it may be an old one when somebody answers."""

    def events(self) -> tuple[Callable[[], None], ...]:
        """All of them."""
        return (self.another_history, self.follow, self.skip_what_is_named)

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

    def decide(self, held: HeldBackPartition) -> None:
        """As what holds it back asks."""
        partition, from_offset = held.topic_id_partition, held.follow_from
        named = (partition.topic, partition.partition)

        def follows(tiering: Any, _process: Process) -> None:
            planned = tiering.plan_follow(*named, from_offset, str(partition.topic_id))
            tiering.follow_source(planned, reason="lost elsewhere, too", author="operator")

        def skips(tiering: Any, _process: Process) -> None:
            planned = tiering.plan_skip(*named, str(partition.topic_id))
            tiering.skip_offsets(planned, reason="lost", author="operator")

        self._world.start("operator", skips if from_offset is None else follows)
        if from_offset is None:
            self._tell("what is named is skipped", partition, str(held.reason))
        else:
            self._tell("the source is followed", partition, f"from {from_offset}")


def is_asked(held: HeldBackPartition) -> bool:
    """Whether a person can end it by a decision: failed segments may be given up though the source still has them, if
    their new copies fail each time."""
    return held.follow_from is not None or held.hole is not None or bool(held.lost)
