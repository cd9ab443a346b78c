"""Partitions that wait for a person: when the faults stop, somebody decides all that plans ask about, and then nothing
waits for a decision any more."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from include.tiering.copying.plan import HeldBack
from tests.simulation.world.history_events import HistoryEvents, is_asked
from tests.simulation.world.runs import Runs

if TYPE_CHECKING:
    from tests.simulation.world.world import World

_ROUNDS = 8
"""A decision may bring to light what is behind it."""
_WHAT = "work continues when a person has decided"
_OTHERS = {
    HeldBack.NOT_ELIGIBLE,
    HeldBack.NOT_OURS,
    HeldBack.PAST_RETENTION,
    HeldBack.STORE_IN_DOUBT,
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
