"""When the faults stop, everything that brokers could be told is told, or a publisher says why not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from include.tiering.metadata_sync.plan_publication import PublicationPlan
from tests.simulation.invariants.rows import FINISHED
from tests.simulation.world.handover_events import HandoverEvents
from tests.simulation.world.runs import Runs

if TYPE_CHECKING:
    from tests.simulation.world.world import World

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
