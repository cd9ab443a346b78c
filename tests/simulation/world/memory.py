"""Answers of reads, kept while no row was written that they depend on. It saves half of the time of a schedule.

Only reads whose answer follows from what is stored and from nothing else (no clock) are kept.
"""

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.world.database import Database

_TABLES_OF: Final = {
    "metadata.list_segments": ("segments", "segment_epochs", "topics"),
    "metadata.segment": ("segments", "topics"),
    "metadata.partitions": ("size_counters", "topics"),
    "metadata.highest_offset_for_epoch": ("size_counters",),
    "metadata.highest_copied_offset": ("size_counters",),
    "metadata.stopped_reason": ("partitions",),
    "metadata.retention_state": ("partitions",),
    "metadata.skipped_offsets": ("skipped_offsets",),
    "metadata.is_continued": ("divergences", "size_counters", "segments", "segment_epochs"),
    "metadata.divergences": ("divergences", "partitions", "segments"),
    "metadata.merge_leader_epochs": ("partitions", "divergences"),
    "work.remaining": ("planned_segments",),
    "work.has_work": ("planned_partitions", "planned_segments"),
    "work.paused_topics": ("pauses",),
    "work.pool_size": ("pools",),
    "deletions.run": ("runs", "approvals"),
    "deletions.plan": ("planned_expirations", "planned_deletions"),
    "deletions.remaining": ("planned_expirations", "planned_deletions"),
    "deletions.has_work": ("planned_deletions",),
    "registry.owner": ("topics",),
    "configs.snapshot": ("dynamic_configs", "dynamic_config_changes"),
    "configs.of_entity": ("dynamic_configs",),
    "topic_deletions.all": ("topics",),
    "publications.journal": ("publications", "published_records", "topics"),
    "handovers.handover": ("handovers",),
    "handovers.overrides": ("retention_overrides",),
    "handovers.seed": ("handover_partitions", "topics"),
}
"""The one that writes now and then, `merge_leader_epochs`, writes nothing when it is asked the same again."""


class Memory:
    """Of one world."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._answers: dict[object, tuple[int, Any]] = {}

    def over(self, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method`, asked only if its answer may be another one."""
        tables = _TABLES_OF.get(label)
        if tables is None:
            return method
        answers, version_of = self._answers, self._db.version

        def cached(*args: Any, **kwargs: Any) -> Any:
            key = (label, args, tuple(kwargs.items()))
            version = version_of(*tables)
            known = answers.get(key)
            if known is not None and known[0] == version:
                return known[1]
            answer = method(*args, **kwargs)
            if version_of(*tables) == version:
                answers[key] = version, answer
            return answer

        return cached


class Cached:
    """A contract whose calls are no scheduling points."""

    def __init__(self, memory: Memory, name: str, target: object) -> None:
        self._memory = memory
        self._name = name
        self._target = target

    def __getattr__(self, method: str) -> Any:
        found = self.__dict__[method] = self._memory.over(f"{self._name}.{method}", getattr(self._target, method))
        return found
