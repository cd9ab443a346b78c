"""Mutants of what a person decides: to follow another history, to go on behind what was compacted away."""

from itertools import dropwhile
from typing import Any

from include.tiering.log_source.contract import IneligibleReason
from include.tiering.model.skipped_offsets import OffsetRange
from include.tiering.remote_metadata import sql_divergences
from include.tiering.tasks import copy_fork, plan_copy
from include.tiering.tasks.next_segments import uncopied
from include.tiering.wiring import name_parts
from tests.simulation.mutants.mutant import Mutant, Patch, nothing, otherwise


def _never_back() -> list[Patch]:
    return [(sql_divergences, "_go_back", nothing)]


def _left_is_remote() -> list[Patch]:
    def instead(segment: Any, _history: int, _divergences: Any) -> OffsetRange:
        return OffsetRange(segment.start_offset, segment.end_offset)

    return [(copy_fork, "part_of_history", instead)]


def _compacted_unseen() -> list[Patch]:
    return [(name_parts, "with_compacted", lambda report, *_: report)]


def _behind_compacted() -> list[Patch]:
    def instead(replica: Any, highest: int | None, _metadata: Any) -> list[Any]:
        pending = uncopied(replica.segments, highest, replica.log_start_offset)
        return list(dropwhile(lambda one: one.reason is IneligibleReason.COMPACTED_SEGMENT, pending))

    return [(plan_copy, "next_segments", instead)]


FOLLOWING = (
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
)
