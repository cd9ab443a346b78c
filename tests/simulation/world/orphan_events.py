"""What lies in the bucket and belongs to nobody: of attempts that a database of another time knew."""

from typing import Final

from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.event_source import EventSource
from tests.simulation.world.runs import Runs
from tests.simulation.world.world import World

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
