"""What audits remove: nothing that metadata knows, that is young, or that is a complete copy which nobody remembers."""

from typing import TYPE_CHECKING

from include.tiering.model.segments import Uuid
from tests.simulation.invariants.rows import GONE
from tests.simulation.kernel.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.invariants.watch import Watch

_MIN_AGE_MS = 24 * 60 * 60 * 1000
_SUFFIXES = ("log", "indexes", "rsm-manifest")


class Audits:
    """Of one world."""

    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._world = watch.world
        self._tiered: dict[Process, frozenset[Uuid]] = {}

    def asks(self, process: Process) -> None:
        """It is granted a request, and asks right then whose the topic is."""
        cluster_metadata = self._world.cluster_metadata.visible()[0].values()
        self._tiered[process] = frozenset(one.topic_id for one in cluster_metadata if one.is_remote_storage_enabled)

    def cannot_know(self, key: str, process: Process) -> bool:
        """That a broker wrote it: the metadata log lags by more than a day, or the topic was deleted since."""
        topic_id = Uuid.parse(key.partition("/")[0][-22:])
        return process.name.startswith("remover") and topic_id not in self._tiered.get(process, frozenset())

    def removes(self, key: str, process: Process) -> None:
        """An object goes; what lies beside it is still there."""
        place, _, _ = key.rpartition(".")
        segment_id = place.rpartition("/")[2][21:43]
        row = self._watch.rows.known.get(segment_id)
        if row is not None and row.state != GONE and segment_id not in self._watch.may_leave_objects:
            self._watch.broken("an audit removes nothing that is in the metadata", f"{key} of {row}")
        age_ms = self._world.scheduler.now_ms - self._world.store.written_ms.get(key, 0)
        if age_ms < _MIN_AGE_MS:
            self._watch.broken("an audit removes nothing young", f"{key} was written {age_ms} ms ago")
        if not self._watch.sending.has_asked_for_requests(process):
            self._watch.broken("deletions keep to their rate", f"{key}: {process.name} asked for no request before")
        objects = self._world.store.objects
        is_complete = all(f"{place}.{suffix}" in objects for suffix in _SUFFIXES)
        is_sound = not (self._world.tempers.store_damages or segment_id in self._watch.rotten)
        if row is None and is_complete and is_sound and key not in self._world.store.brokers_own:
            self._watch.broken("a complete copy without metadata stays", f"{key} goes")
