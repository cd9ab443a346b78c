"""Mutants of what a person decides: to follow another history, to go on behind what was compacted away."""

from itertools import dropwhile
from typing import Any

from include.tiering.log_source.contract import IneligibleReason
from include.tiering.model.divergence import newest_history, open_divergence
from include.tiering.model.skipped_offsets import OffsetRange, not_skipped
from include.tiering.remote_metadata import sql_changes, sql_divergences
from include.tiering.tasks import copy_fork, plan_copy
from include.tiering.tasks.next_segments import uncopied
from include.tiering.wiring import name_parts
from tests.simulation.mutants.mutant import Mutant, Patch, nothing, otherwise, refused


def _any_history() -> list[Patch]:
    """A divergence that is open is refused still."""

    def instead(connection: Any, cluster_id: str, partition: Any, _history: int) -> None:
        found = sql_divergences.divergences_of(connection, cluster_id, partition)
        if open_divergence(found) is not None:
            raise sql_divergences.StateConflictError(f"{partition}: {open_divergence(found)}")

    return [(sql_changes, "require_one_history", instead)]


def _never_back() -> list[Patch]:
    return [(sql_divergences, "_go_back", nothing)]


def _left_is_remote() -> list[Patch]:
    def instead(segment: Any, _history: int, _divergences: Any) -> OffsetRange:
        return OffsetRange(segment.start_offset, segment.end_offset)

    return [(copy_fork, "part_of_history", instead)]


def _plans_of_before() -> list[Patch]:
    def instead(self: Any, partition: Any, metadata: Any) -> None:
        if not self.is_behind:
            history = newest_history(metadata.divergences(partition))
            metadata.record_divergence(partition, self.seen, history=history)

    return [(copy_fork.Fork, "record", instead)]


def _compacted_unseen() -> list[Patch]:
    return [(name_parts, "with_compacted", lambda report, *_: report)]


def _behind_compacted() -> list[Patch]:
    def instead(replica: Any, highest: int | None, _metadata: Any) -> list[Any]:
        pending = uncopied(replica.segments, highest, replica.log_start_offset)
        return list(dropwhile(lambda one: one.reason is IneligibleReason.COMPACTED_SEGMENT, pending))

    return [(plan_copy, "next_segments", instead)]


def _whole_ones_too() -> list[Patch]:
    def instead(replica: Any, highest: int | None, metadata: Any) -> list[Any]:
        pending = uncopied(replica.segments, highest, replica.log_start_offset)
        decisions = metadata.skipped_offsets(replica.topic_id_partition)
        first = replica.log_start_offset if highest is None else highest + 1

        def is_decided(one: Any) -> bool:
            return not list(not_skipped(max(one.base_offset, first), one.end_offset, decisions))

        return list(dropwhile(is_decided, pending))

    return [(plan_copy, "next_segments", instead)]


FOLLOWING = (
    Mutant(
        "of-before-a-decision",
        "what began before a decision is not FINISHED after it",
        "nobody asks in which history it began",
        _any_history,
        refused,
    ),
    Mutant(
        "never-back",
        "a decision lets copies begin where the source is followed",
        "they go on behind what was copied",
        _never_back,
    ),
    Mutant(
        "left-is-remote",
        "what a decision left is compared with no source any more",
        "it is",
        _left_is_remote,
    ),
    Mutant(
        "plans-of-before",
        "what a plan of before a decision saw is not recorded after it",
        "it is",
        _plans_of_before,
    ),
    Mutant(
        "compacted-unseen",
        "a plan names what was compacted away",
        "only the copy notices",
        _compacted_unseen,
    ),
    Mutant(
        "behind-compacted",
        "going on behind what was compacted away is a decision",
        "a plan goes on by itself",
        _behind_compacted,
        otherwise,
    ),
    Mutant(
        "decided-is-gone",
        "what is whole where it is read is copied, whatever was decided",
        "it is left out",
        _whole_ones_too,
        otherwise,
    ),
)
