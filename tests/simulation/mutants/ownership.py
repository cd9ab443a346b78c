"""Mutants of owners and handovers."""

import sys
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

from sqlalchemy import true

from include.tiering.database.transactions import FenceHolder, writing
from include.tiering.errors import LeaseLostError
from include.tiering.handover import contract, drive, publish_and_switch, retention_overrides, run_checks
from include.tiering.handover.ports import DONE, REMOTE_STORAGE
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.remote_storage.segment_storage import GuardedStorage, SegmentStorage
from include.tiering.runs import sql_batches, sql_deletion_runs
from include.tiering.runs import store as work_store
from include.tiering.runs.batch import BatchHeartbeat, CancellationToken
from include.tiering.segments import sql, sql_changes, sql_partition_state, sql_rows
from tests.simulation.mutants.mutant import Call, Mutant, Mutants, Patch, nothing, refused
from tests.simulation.world.database import database

OWNING = Mutants()
HANDING_OVER = Mutants()


# Mutants of leases, fences, cancellation tokens, pauses and the store's marker.


@OWNING.breaks("no-fence", "a change with an old token is refused", "any token is accepted")
def _fences_ignored() -> list[Patch]:
    def held(_connection: Any, _cluster_id: str, _fence: Any) -> FenceHolder:
        return FenceHolder("run", "batch")

    places = (sql, sql_changes, sql_partition_state, work_store, sql_deletion_runs)
    return [(place, "hold_fence", held) for place in places if hasattr(place, "hold_fence")]


@OWNING.breaks("steal-leases", "a live lease belongs to one holder", "a claim takes a live lease")
def _live_leases_taken() -> list[Patch]:
    """Statements that are kept otherwise are built anew."""
    kept = ((sql_batches, "_take"), (work_store, "_next_claimable"), (work_store, "_waiting_longer"))
    anew: list[Patch] = [(place, name, getattr(place, name).__wrapped__) for place, name in kept]
    return [*anew, (sql_batches, "is_free", lambda *_: true())]


@OWNING.breaks("same-token", "tokens ascend with every claim", "each claim gets token 1")
def _tokens_restart() -> list[Patch]:
    """Each claim gets the token that the newest one has."""
    real = sql_batches.take

    def instead(connection: Any, cluster_id: str, partition: Any, role: Any, **rest: Any) -> Any:
        return real(connection, cluster_id, partition, role, **{**rest, "now_ms": rest["now_ms"]})

    def same_token(*args: Any, **rest: Any) -> Any:
        fence = instead(*args, **rest)
        if fence is None:
            return None
        args[0].execute(sql_batches._RELEASE, sql_batches.key_of_fence(args[1], fence) | {"token": 1})
        return type(fence)(fence.topic_id_partition, 1, fence.role)

    return [(work_store, "take", same_token)]


@OWNING.breaks("endless-lease", "an expired lease ends the sending", "the lease never expires")
def _lease_never_runs_out() -> list[Patch]:
    return [(CancellationToken, "lease_valid_until", nothing)]


@OWNING.breaks("no-pause", "a pause stops the sending", "the pause is ignored")
def _pause_not_seen() -> list[Patch]:
    return [(CancellationToken, "set_paused", nothing)]


def _was_paused(call: Call) -> bool:
    """At some time: else the wrong function does what the right one does."""
    return bool(call.args[0].pauses)


@OWNING.breaks("no-pause-in-flight", "a pause stops transfers in flight", "it keeps others from beginning", _was_paused)
def _pause_not_seen_in_flight() -> list[Patch]:
    def instead(self: Any) -> None:
        is_paused, self._paused = self._paused, False
        try:
            self.check_now()
        finally:
            self._paused = is_paused

    return [(CancellationToken, "check", instead)]


@OWNING.breaks("lease-outlived", "a lost lease ends transfers in flight", "it keeps others from beginning", refused)
def _lease_outlived_in_flight() -> list[Patch]:
    real = CancellationToken.check

    def instead(self: Any) -> None:
        with suppress(LeaseLostError):
            real(self)

    return [(CancellationToken, "check", instead)]


@OWNING.breaks("no-renewal", "a lease is renewed in the database", "only the host's clock is used")
def _leases_not_renewed() -> list[Patch]:
    def beat(self: Any) -> None:
        for held in self._held:
            self._hold_from(held, self._clock.monotonic())

    return [(BatchHeartbeat, "_renew", beat)]


@OWNING.breaks("no-marker", "a foreign bucket is left alone", "the marker is not read")
def _marker_not_asked() -> list[Patch]:
    return [(GuardedStorage, "check_marker", nothing)]


@OWNING.breaks("counters-grow", "counters equal a recount", "segments that leave a state stay counted")
def _counters_only_grow() -> list[Patch]:
    return [(sql_changes, "count_out", nothing), (sql, "count_out", nothing)]


@OWNING.breaks("count-started", "only FINISHED counts as size", "STARTED counts as well")
def _started_counts() -> list[Patch]:
    """What is only begun counts as if it were FINISHED."""
    real = sql_rows._added_up
    states = sql_changes.RemoteLogSegmentState  # type: ignore[attr-defined]

    def instead(segments: Any) -> Any:
        sums = real(segments)
        return {
            (epoch, states.COPY_SEGMENT_FINISHED if state is states.COPY_SEGMENT_STARTED else state): counted
            for (epoch, state), counted in sums.items()
        }

    return [(sql_rows, "_added_up", instead)]


def _does_not_wait(method: str) -> list[Patch]:
    """Its commit does not wait for the disk."""
    real = getattr(sql.SqlRemoteLogMetadata, method)
    module = sys.modules[real.__module__]

    def instead(self: Any, *args: Any, **rest: Any) -> Any:
        with patch.object(module, "writing", partial(writing, durable=False)):
            return real(self, *args, **rest)

    return [(sql.SqlRemoteLogMetadata, method, instead)]


def _power_may_fail(_call: Call) -> bool:
    """Elsewhere nobody can tell whether a commit waited."""
    return database().power_fails


@OWNING.breaks(
    "all-uploads", "uploads of other writers are left alone", "all uploads under the partition's prefix are deleted"
)
def _all_uploads_aborted() -> list[Patch]:
    """Whatever lies open in the partition's place is taken for what the segment left."""

    def instead(self: Any, owners: Any) -> Any:
        for prefix in {key.rpartition("/")[0] for key in owners}:
            for upload in list(self._store.list_open_uploads(prefix)):
                self._store.abort_upload(upload)
        return iter(())

    return [(SegmentStorage, "_abort_uploads", instead)]


OWNING += [
    Mutant(
        "hasty-finished",
        "FINISHED is on disk",
        "the commit does not wait for the disk",
        lambda: _does_not_wait("update_segment"),
        _power_may_fail,
    ),
    Mutant(
        "hasty-deletion",
        "DELETE_STARTED is on disk before an object is deleted",
        "the commit does not wait for the disk",
        lambda: _does_not_wait("advance_deletion"),
        _power_may_fail,
    ),
    Mutant(
        "hasty-log-start",
        "the log start is on disk",
        "the commit does not wait for the disk",
        lambda: _does_not_wait("raise_log_start"),
        _power_may_fail,
    ),
]


# Mutants of handovers.

_follows = drive.following  # type: ignore[attr-defined]


def _order(**after: HandoverStep) -> list[Patch]:
    """Steps that come behind others than they should."""

    def instead(step: HandoverStep) -> HandoverStep | None:
        return after.get(step.name, _follows(step))

    return [(drive, "following", instead)]


@HANDING_OVER.breaks("guards-late", "a handover overrides retention before it copies", "a handover copies first")
def _overrides_after_copy() -> list[Patch]:
    return _order(PRECONDITIONS=HandoverStep.COPY, COPY=HandoverStep.OVERRIDES, OVERRIDES=HandoverStep.QUALITY_CHECK)


@HANDING_OVER.breaks("switch-unpublished", "only complete partitions are switched on", "nothing need be published")
def _unpublished() -> list[Patch]:
    return _order(RECHECK=HandoverStep.SWITCH)


def _unwatched(*steps: HandoverStep) -> list[Patch]:
    """In these steps nobody waits for brokers to know what is remote."""
    real = publish_and_switch._wait_for_brokers

    def instead(run: Any, step: HandoverStep) -> Any:
        return (DONE, run_checks.evidence_of(run)) if step in steps else real(run, step)

    return [(publish_and_switch, "_wait_for_brokers", instead)]


@HANDING_OVER.breaks(
    "retention-early", "retention is restored when the brokers know what is remote", "retention is restored at once"
)
def _never_watched() -> list[Patch]:
    return _unwatched(HandoverStep.WATCH, HandoverStep.RETENTION)


@HANDING_OVER.breaks("old-leaders-knew", "the current leaders know what is remote", "earlier leaders count as well")
def _watched_once() -> list[Patch]:
    return _unwatched(HandoverStep.RETENTION)


@HANDING_OVER.breaks("guards-unstored", "old values are stored before retention is overridden", "the rule is ignored")
def _unstored() -> list[Patch]:
    def instead(_self: Any, _drive: Any, overrides: Any) -> Any:
        return overrides

    return [(SqlHandoverStore, "save_overrides", instead)]


@HANDING_OVER.breaks("guards-unset", "restored values are the old values", "the default is restored")
def _unset() -> list[Patch]:
    """What was held back is set back to the default."""

    def instead(run: Any, keys: Any) -> None:
        found = run.ports.handovers.overrides(run.drive.handover_id)
        left = [one.key for one in found if not one.restored and one.key in keys]
        if left:
            retention_overrides.change_configs(run, run.handover.topic, dict.fromkeys(left))
            run.ports.handovers.overrides_restored(run.drive, left)

    return [(drive, "restore_overrides", instead), (publish_and_switch, "restore_overrides", instead)]


@HANDING_OVER.breaks(
    "first-value-stays", "restored values are the most recent ones", "the first stored value is restored"
)
def _first_value_stays() -> list[Patch]:
    """What somebody sets meanwhile is not stored."""
    real = SqlHandoverStore.save_overrides

    def instead(store: SqlHandoverStore, drive: Any, found: Any) -> Any:
        known = {one.key for one in store.overrides(drive.handover_id) if not one.restored}
        return real(store, drive, [one for one in found if one.key not in known])

    return [(SqlHandoverStore, "save_overrides", instead)]


@HANDING_OVER.breaks("undo-keeps-guards", "an undo restores overridden configs", "the rule is ignored")
def _kept_by_undo() -> list[Patch]:
    return [(drive, "restore_overrides", nothing)]


@HANDING_OVER.breaks(
    "switch-unguarded", "the switch is made under retention overrides", "the overrides are not checked"
)
def _switched_without_overrides() -> list[Patch]:
    """Nobody looks at the retention overrides once they are set, and the switch is a request of its own."""
    real = run_checks.results_of  # type: ignore[attr-defined]

    def instead(checks: Any, *args: Any) -> Any:
        return real([one for one in checks if not one.name.endswith("-is-guarded")], *args)

    def alone(run: Any, topic: str, changes: Any) -> None:
        retention_overrides.change_configs(run, topic, {REMOTE_STORAGE: changes[REMOTE_STORAGE]})

    return [
        (publish_and_switch, "_is_limited", lambda *_: False),
        (publish_and_switch, "change_configs", alone),
        (run_checks, "results_of", instead),
    ]


@HANDING_OVER.breaks("by-hand-unnoticed", "a switch by hand is followed", "a switch by hand is not noticed")
def _unnoticed() -> list[Patch]:
    return [(drive, "notice_switch", nothing), (publish_and_switch, "notice_switch", nothing)]


@HANDING_OVER.breaks("watchdog-asleep", "retention overrides are never forgotten", "the watch reports nothing")
def _asleep() -> list[Patch]:
    return [(contract, "_forgotten", nothing)]
