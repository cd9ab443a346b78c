"""Answers of reads, kept while nothing that they depend on was written. It saves half of the time of a schedule.

Only reads whose answer follows from what is stored and from nothing else (no clock) are kept.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.world.database import Database

_PLANS, _SEGMENTS, _TRUTH, _PAUSES, _RUNS, _OWNERS, _CONFIGS, _DELETED, _FOR_EVER = range(9)
_READS: Final = {
    "metadata.list_segments": _SEGMENTS,
    "metadata.segment": _SEGMENTS,
    "metadata.partitions": _SEGMENTS,
    "metadata.highest_offset_for_epoch": _TRUTH,
    "metadata.highest_copied_offset": _TRUTH,
    "metadata.stopped_reason": _TRUTH,
    "metadata.partition_truth": _TRUTH,
    "metadata.skipped_offsets": _TRUTH,
    "metadata.is_ready": _FOR_EVER,
    "work.remaining": _PLANS,
    "work.has_work": _PLANS,
    "work.paused_topics": _PAUSES,
    "work.pool_size": _PAUSES,
    "deletions.run": _RUNS,
    "deletions.plan": _RUNS,
    "deletions.remaining": _RUNS,
    "deletions.has_work": _RUNS,
    "registry.owner": _OWNERS,
    "configs.snapshot": _CONFIGS,
    "configs.of_entity": _CONFIGS,
    "topic_deletions.all": _DELETED,
}
_READS_UNLESS_IT_LEARNS: Final = {"metadata.merge_leader_epochs": _TRUTH}
"""Writes that mostly have nothing to write: such an answer is kept too."""

_WRITES: Final = {
    "metadata.add_segment": (_SEGMENTS,),
    "metadata.update_segment": (_SEGMENTS, _TRUTH),
    "metadata.advance_deletion": (_SEGMENTS, _TRUTH),
    "metadata.forget_tombstones": (_SEGMENTS,),
    "metadata.raise_log_start": (_TRUTH,),
    "metadata.skip_offsets": (_TRUTH,),
    "metadata.merge_leader_epochs": (_TRUTH,),
    "work.save_plan": (_PLANS,),
    "work.record_outcome": (_PLANS,),
    "work.note_left": (),
    "work.claim": (),
    "work.renew": (),
    "work.release": (),
    "work.report_progress": (),
    "deletions.save_plan": (_RUNS,),
    "deletions.record_brake": (_RUNS,),
    "deletions.approve": (_RUNS,),
    "deletions.record_outcomes": (_RUNS,),
    "deletions.claim": (),
    "topic_deletions.record": (_DELETED,),
    "topic_deletions.withdraw": (_DELETED,),
}


class Memory:
    """Of one world."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._answers: dict[int, dict[object, Any]] = defaultdict(dict)

    def forget(self, label: str) -> None:
        """After a write, or anything else that may have changed what is stored."""
        groups = _WRITES.get(label)
        if groups is None:
            groups = tuple(group for group in self._answers if group != _FOR_EVER)
        for group in groups:
            self._answers.pop(group, None)

    def over(self, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method`, asked only if its answer may be another one."""
        group = _READS.get(label)
        if group is not None:
            return self._reading(group, label, method)
        if label in _READS_UNLESS_IT_LEARNS:
            return self._learning(_READS_UNLESS_IT_LEARNS[label], label, method)
        return method

    def _reading(self, group: int, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*args: Any, **kwargs: Any) -> Any:
            answers = self._answers[group]
            key = (label, args, tuple(kwargs.items()))
            if key not in answers:
                answers[key] = method(*args, **kwargs)
            return answers[key]

        return remembered

    def _learning(self, group: int, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*args: Any, **kwargs: Any) -> Any:
            key = (label, args, tuple(kwargs.items()))
            if key in self._answers[group]:
                return self._answers[group][key]
            before = self._db.changes
            answer = method(*args, **kwargs)
            if self._db.changes == before:
                self._answers[group][key] = answer
            else:
                self.forget(label)
            return answer

        return remembered


class Remembered:
    """A contract whose calls are no scheduling points."""

    def __init__(self, memory: Memory, name: str, target: object) -> None:
        self._memory = memory
        self._name = name
        self._target = target

    def __getattr__(self, method: str) -> Any:
        found = self.__dict__[method] = self._memory.over(f"{self._name}.{method}", getattr(self._target, method))
        return found
