"""Mutants of what a person decides: to follow another history, to go on behind what was compacted away."""

from dataclasses import replace
from itertools import dropwhile
from typing import Any

from include.tiering.copying import copy_checks, copy_segment, decisions, next_segments, plan_copy
from include.tiering.copying import plan_copy as copy_planner
from include.tiering.copying.next_segments import uncopied
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import StateConflictError
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.histories import OffsetRange, newest_history, open_divergence
from include.tiering.segments import sql_changes, sql_divergences
from include.tiering.segments.sql_divergences import SqlDivergences
from include.tiering.segments.sql_partition_state import SqlPartitionState
from tests.simulation.mutants.mutant import Call, Mutant, Mutants, Patch, nothing, otherwise, refused

FOLLOWING = Mutants()


_records = SqlDivergences.record_divergence
_skips = SqlPartitionState.skip_offsets
_goes_on = plan_copy.next_segments  # type: ignore[attr-defined]
_plans_skip = decisions.plan_skip


@FOLLOWING.breaks(
    "never-back",
    "after a decision copies begin where the source is followed",
    "copies continue after the last copied offset",
)
def _never_back() -> list[Patch]:
    return [(sql_divergences, "_go_back", nothing)]


@FOLLOWING.breaks(
    "left-is-remote", "segments of a replaced history are not compared with a source", "the rule is ignored"
)
def _left_is_remote() -> list[Patch]:
    def instead(segment: Any, _history: int, _divergences: Any) -> OffsetRange:
        return OffsetRange(segment.start_offset, segment.end_offset)

    return [(copy_checks, "part_of_history", instead)]


@FOLLOWING.breaks("compacted-unseen", "a plan names offsets that were compacted away", "only the copy notices")
def _compacted_unseen() -> list[Patch]:
    return [(copy_planner, "with_compacted", lambda report, *_: report)]


@FOLLOWING.breaks(
    "behind-compacted", "copying after compacted segments needs a decision", "a plan goes on by itself", otherwise
)
def _behind_compacted() -> list[Patch]:
    def instead(replica: Any, highest: int | None, _metadata: Any) -> list[Any]:
        pending = uncopied(replica.segments, highest, replica.log_start_offset)
        return list(dropwhile(lambda one: one.reason is IneligibleReason.COMPACTED_SEGMENT, pending))

    return [(plan_copy, "next_segments", instead)]


@FOLLOWING.breaks(
    "end-of-before",
    "a copy begins at the archive's end at the time of STARTED",
    "it begins where the archive ended when the batch began",
    refused,
)
def _end_of_before() -> list[Patch]:
    return [(copy_segment, "require_same_end", nothing)]


def _recorded_late() -> list[Patch]:
    """A record of before a decision is taken for one of after it."""

    def instead(self: Any, partition: Any, seen: Any, *, history: int) -> Any:
        return _records(self, partition, seen, history=newest_history(self.divergences(partition)))

    return [(SqlDivergences, "record_divergence", instead)]


def _found_nothing(call: Call) -> bool:
    return call.error is None and call.result is None


def _finished_across() -> list[Patch]:
    """Only what waits for a decision keeps a copy from FINISHED."""

    def instead(connection: Any, cluster_id: str, partition: Any, _history: int) -> None:
        undecided = open_divergence(sql_divergences.divergences_of(connection, cluster_id, partition))
        if undecided is not None:
            raise StateConflictError(f"{partition}: {undecided}")

    return [(sql_changes, "require_one_history", instead)]


def _is_of_before(call: Call) -> bool:
    return call.error is not None


def _decided_is_left_out() -> list[Patch]:
    """Where it was compacted and where it is whole."""

    def instead(replica: Any, highest: int | None, metadata: Any) -> list[Any]:
        if not replica.was_compacted:
            return _goes_on(replica, highest, metadata)
        pending = uncopied(replica.segments, highest, replica.log_start_offset)
        decisions = metadata.skipped_offsets(replica.topic_id_partition)
        return list(dropwhile(lambda one: not next_segments._undecided(replica, one, highest, decisions), pending))

    return [(plan_copy, "next_segments", instead)]


def _of_a_compacted_log(call: Call) -> bool:
    return bool(call.result) and call.args[0].was_compacted


def _compacted_is_missing() -> list[Patch]:
    """What a log cleaner took is a file that is missing, as in any other topic."""

    def instead(report: Any, plan: Any, *rest: Any) -> Any:
        held_back = [
            replace(one, reason=HeldBack.HOLE) if one.reason is HeldBack.COMPACTED else one for one in plan.held_back
        ]
        return _plans_skip(report, replace(plan, held_back=tuple(held_back)), *rest)

    return [(decisions, "plan_skip", instead)]


def _is_compacted(call: Call) -> bool:
    return call.result is not None and call.result.is_compacted


def _never_first() -> list[Patch]:
    def instead(*args: Any, may_be_first: bool = False, **rest: Any) -> Any:
        return _skips(*args, **rest)

    return [(SqlPartitionState, "skip_offsets", instead)]


def _may_be_first(call: Call) -> bool:
    return bool(call.kwargs.get("may_be_first"))


FOLLOWING += [
    Mutant(
        "recorded-late",
        "a divergence seen before a decision is not recorded after it",
        "the rule is ignored",
        _recorded_late,
        _found_nothing,
    ),
    Mutant(
        "finished-across",
        "an attempt from before a decision is not FINISHED after it",
        "only an open divergence prevents FINISHED",
        _finished_across,
        _is_of_before,
    ),
    Mutant(
        "decided-is-left-out",
        "a complete segment is copied in spite of a decision",
        "offsets that a decision covers are left out",
        _decided_is_left_out,
        _of_a_compacted_log,
    ),
    Mutant(
        "compacted-is-missing",
        "a person may continue without compacted segments",
        "compacted segments count as missing files",
        _compacted_is_missing,
        _is_compacted,
    ),
    Mutant(
        "never-first",
        "a first copy may begin after compacted segments",
        "something must have been copied before",
        _never_first,
        _may_be_first,
    ),
]
