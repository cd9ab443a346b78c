"""Mutants of the copy protocol."""

import hashlib
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from include.tiering.copying import (
    copy_checks,
    copy_segment,
    finish_abandoned,
    plan,
    plan_copy,
    plan_replacements,
    transfers,
)
from include.tiering.copying.copy_segment import SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies
from include.tiering.copying.plan_replacements import Replacements
from include.tiering.database.schema import segment_epochs, segments
from include.tiering.database.transactions import of_partition
from include.tiering.kafka.log_dirs import evaluate_replicas as evaluate_replicas
from include.tiering.kafka.log_dirs import rules
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, Uuid
from include.tiering.segments import sql, sql_changes, sql_partition_state
from tests.simulation.mutants.mutant import Instead, Mutant, Mutants, Patch, found_one, nothing, refused, said, said_yes

COPYING = Mutants()


_sends = SegmentCopier._send_and_finish
_begins = SegmentCopier._new_attempt


@COPYING.breaks("skip-recheck", "the source is checked again after sending", "the rule is ignored")
def _without_recheck() -> list[Patch]:
    def instead(self: Any, attempt: Any, opened: Any, checked: Any, **rest: Any) -> Any:
        return _sends(self, attempt, Instead(opened, recheck=nothing), checked, **rest)

    return [(SegmentCopier, "_send_and_finish", instead)]


@COPYING.breaks("no-verify", "FINISHED after the store proved what it has", "the store's checksum is not checked")
def _finished_before_verify() -> list[Patch]:
    return [(copy_segment, "require_stored", nothing)]


@COPYING.breaks("finished-first", "FINISHED is the last step", "FINISHED before the objects are sent")
def _finished_before_sent() -> list[Patch]:
    def instead(self: Any, attempt: Any, opened: Any, checked: Any, *, fence: Any, supersedes: Any, **rest: Any) -> Any:
        states = copy_segment.RemoteLogSegmentState  # type: ignore[attr-defined]
        finished = copy_segment.RemoteLogSegmentMetadataUpdate(  # type: ignore[attr-defined]
            attempt.remote_log_segment_id, states.COPY_SEGMENT_FINISHED, self.clock.now_ms(), attempt.broker_id, None
        )
        self.metadata.update_segment(finished, expected=states.COPY_SEGMENT_STARTED, fence=fence, supersedes=supersedes)
        return _sends(self, attempt, opened, checked, fence=fence, supersedes=supersedes, **rest)

    return [(SegmentCopier, "_send_and_finish", instead)]


@COPYING.breaks("out-of-turn", "FINISHED ascends", "a transfer does not wait for the one before it")
def _out_of_turn() -> list[Patch]:
    return [(transfers, "wait_for", nothing), (SegmentCopier, "_require_continued", nothing)]


@COPYING.breaks("failure-ignored", "a failure takes the later transfers back", "a transfer waits, whatever the end")
def _failures_ignored() -> list[Patch]:
    def instead(predecessor: Any) -> None:
        predecessor.exception()

    return [(transfers, "wait_for", instead), (SegmentCopier, "_require_continued", nothing)]


@COPYING.breaks(
    "later-copy-first",
    "an abandoned copy is finished in its turn",
    "a later one that is whole is finished before the one that is in parts",
    said_yes,
)
def _later_copies_first() -> list[Patch]:
    """Nor are the offsets missed that it leaves out: they are to be copied afterwards."""
    return [(finish_abandoned, "_out_of_turn", nothing), (finish_abandoned, "not_skipped", lambda *_args: [])]


@COPYING.breaks("no-owner", "the owner is checked before FINISHED", "the check is left out")
def _owner_not_asked() -> list[Patch]:
    return [(SegmentCopier, "require_ours", nothing)]


@COPYING.breaks("reuse-id", "a segment id belongs to one attempt", "each attempt at a segment has the same id")
def _id_of_the_segment() -> list[Patch]:
    def instead(self: Any, replica_id: Any, opened: Any, checked: Any) -> Any:
        attempt = _begins(self, replica_id, opened, checked)
        drawn = hashlib.sha256(f"{replica_id.topic_id_partition.topic_id}{replica_id}{attempt.start_offset}".encode())
        reused = RemoteLogSegmentId(replica_id.topic_id_partition, Uuid(drawn.digest()[:16]))
        return replace(attempt, remote_log_segment_id=reused)

    return [(SegmentCopier, "_new_attempt", instead)]


@COPYING.breaks("started-late", "STARTED before the first byte", "the row is written when everything is sent")
def _started_after_sending() -> list[Patch]:
    """Objects first, their row afterwards."""

    def instead(self: Any, replica_id: Any, planned: Any, highest: Any, **rest: Any) -> Any:
        held: list[Any] = []
        real = self.metadata

        def add(*args: Any, **kwargs: Any) -> int | None:
            held.append((args, kwargs))
            return real.highest_copied_offset(replica_id.topic_id_partition)

        late = Instead(real, add_segment=add)

        def update(*args: Any, **kwargs: Any) -> Any:
            for one, named in held:
                real.add_segment(*one, **named)
            return real.update_segment(*args, **kwargs)

        late.__dict__["update_segment"] = update
        return _copies(replace(self, metadata=late), replica_id, planned, highest, **rest)

    return [(SegmentCopier, "copy", instead)]


_copies = SegmentCopier.copy


@COPYING.breaks("forget-highest", "FINISHED ascends", "expired segments are copied again")
def _highest_of_what_is_there() -> list[Patch]:
    """The highest copied offset falls when segments expire."""

    def instead(connection: Any, cluster_id: str, partition: Any, leader_epoch: int = -1) -> int | None:
        of_epoch = () if leader_epoch < 0 else (segment_epochs.c.leader_epoch == leader_epoch,)
        finished = segments.c.state == int(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        query = select(func.max(segments.c.end_offset)).join(
            segment_epochs, segment_epochs.c.segment_key == segments.c.segment_key
        )
        query = query.where(of_partition(segments, cluster_id, partition), finished, *of_epoch)
        return connection.execute(query).scalar_one()

    return [(place, "highest_finished_offset", instead) for place in (sql, sql_changes, sql_partition_state)]


@COPYING.breaks("gaps", "no silent gap", "neither plan nor copy checks for missing offsets")
def _gap_allowed() -> list[Patch]:
    return [(copy_segment, "require_planned", nothing), (plan_copy, "_refusal", lambda *_args: None)]


def _without(*reasons: IneligibleReason) -> list[Patch]:
    real = rules._segment_checks

    def instead(*args: Any) -> Any:
        return ((holds and found not in reasons, found) for holds, found in real(*args))

    return [(rules, "_segment_checks", instead)]


@COPYING.breaks("any-replica", "only the leader's replica is read", "the last replica is read")
def _any_replica() -> list[Patch]:
    def instead(replicas: Any, _cluster_metadata: Any) -> Any:
        last = len(replicas) - 1
        return [None if place == last else IneligibleReason.NOT_LEADER for place in range(len(replicas))]

    return [(evaluate_replicas, "refusals", instead)]


@COPYING.breaks("no-divergence", "a log divergence holds the copy back", "no check for a divergence", found_one)
def _divergences_ignored() -> list[Patch]:
    real = copy_checks.divergence_offset

    def instead(*args: Any) -> None:
        real(*args)

    return [(copy_checks, "divergence_offset", instead)]


@COPYING.breaks("stale-plan", "a copy also checks for a divergence", "only plans check", refused)
def _divergences_of_the_plan() -> list[Patch]:
    """Not even what the right one records, which alone would keep the copy from being FINISHED."""
    return [(copy_segment, "require_no_divergence", nothing)]


@COPYING.breaks(
    "late-divergence",
    "a divergence is named at once",
    "it is named only once there is a segment to copy after it",
    found_one,
)
def _late_divergences() -> list[Patch]:
    real = plan_copy.held_by_divergence  # type: ignore[attr-defined]

    def instead(replica: Any, highest: int | None, metadata: Any) -> Any:
        found = real(replica, highest, metadata)
        next_offset = 0 if highest is None else highest + 1
        is_all_copied = not any(one.end_offset >= next_offset for one in replica.segments if not one.active)
        return None if is_all_copied else found

    return [(plan_copy, "held_by_divergence", instead)]


@COPYING.breaks(
    "forget-divergence",
    "a divergence that was recorded holds its partition back",
    "the recorded divergence is not read",
)
def _divergences_forgotten() -> list[Patch]:
    return [
        (plan, "undecided_divergence", nothing),
        (copy_checks, "undecided_divergence", nothing),
        (sql_changes, "require_one_history", nothing),
    ]


@COPYING.breaks("unrecorded", "a visible divergence is recorded", "the rule is ignored")
def _divergences_unrecorded() -> list[Patch]:
    return [(copy_checks.SourceDivergence, "record", nothing)]


@COPYING.breaks("lost-answer", "FINISHED stays FINISHED", "a lost answer counts as a failure", said(True))
def _lost_answers() -> list[Patch]:
    """An attempt whose FINISHED was stored and never answered is taken for abandoned."""
    real = SegmentCopier._is_finished

    def instead(self: Any, attempt: Any) -> bool:
        real(self, attempt)
        return False

    return [(SegmentCopier, "_is_finished", instead)]


@COPYING.breaks("abandoned-copies-stay", "the next holder removes abandoned copies", "the rule is ignored")
def _abandoned_copies_stay() -> list[Patch]:
    return [(AbandonedCopies, "settle", lambda *_args, **_named: frozenset())]


@COPYING.breaks(
    "row-before-objects", "a row is deleted after its objects", "an abandoned attempt's row is deleted first"
)
def _rows_first() -> list[Patch]:
    """An abandoned attempt loses its row before its objects."""
    real = SegmentCopier.abandon

    def instead(self: Any, attempt: Any, fence: Any) -> None:
        states = copy_segment.RemoteLogSegmentState  # type: ignore[attr-defined]
        if attempt.state is states.COPY_SEGMENT_STARTED:
            self._advance_deletion(attempt, states.DELETE_SEGMENT_STARTED, fence)
        deleting = replace(attempt, state=states.DELETE_SEGMENT_STARTED)
        self._advance_deletion(deleting, states.DELETE_SEGMENT_FINISHED, fence)
        real(self, deleting, fence)

    return [(SegmentCopier, "abandon", instead)]


@COPYING.breaks("objects-before-row", "DELETE_STARTED before the first object is deleted", "objects are deleted first")
def _objects_first() -> list[Patch]:
    """An abandoned attempt loses its objects while its row says STARTED."""
    real = SegmentCopier.abandon

    def instead(self: Any, attempt: Any, fence: Any) -> None:
        self.storage.delete_log_segments([attempt])
        real(self, attempt, fence)

    return [(SegmentCopier, "abandon", instead)]


@COPYING.breaks("both-stay", "a new copy takes the place of a failed one", "both stay FINISHED")
def _both_stay() -> list[Patch]:
    return [(sql_changes.SegmentChanges, "_supersede", nothing)]


@COPYING.breaks("no-stop", "a failed segment stops its partition", "the rule is ignored")
def _never_stopped() -> list[Patch]:
    return [
        (sql_changes, "refresh_stop", nothing),
        (sql, "refresh_stop", nothing),
        (plan_copy, "replacements_of", lambda *_: Replacements()),
    ]


@COPYING.breaks(
    "any-offsets",
    "a new copy has the offsets of the failed segment",
    "it has any segment that begins at the same offset",
)
def _any_offsets() -> list[Patch]:
    """What takes the place of a failed segment need not be what failed."""
    return [
        (copy_segment, "require_replaceable", nothing),
        (sql_changes, "require_supersedable", nothing),
        (plan_replacements, "_same_segment", lambda replica, failed: replica.segment_at(failed.start_offset)),
    ]


COPYING += [
    Mutant(
        "above-high-watermark",
        "nothing at or above the high watermark",
        "the bound is not checked",
        lambda: _without(IneligibleReason.ABOVE_HIGH_WATERMARK, IneligibleReason.ABOVE_LAST_STABLE_OFFSET),
    ),
    Mutant(
        "above-stable",
        "nothing at or above the last stable offset",
        "the bound is not checked",
        lambda: _without(IneligibleReason.ABOVE_LAST_STABLE_OFFSET),
    ),
]
