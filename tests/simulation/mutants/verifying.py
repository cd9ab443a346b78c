"""Mutants of verification and of audits."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from include.tiering.audit import plan_removals, rules
from include.tiering.audit.finding import AuditMoment
from include.tiering.audit.service import AuditService
from include.tiering.audit.sql_removals import SqlRemovalStore
from include.tiering.errors import ForeignStoreError
from include.tiering.remote_storage.orphan_objects import StoredOrphans
from include.tiering.segments import sql_verdicts
from include.tiering.segments.topics import SeenOwners
from include.tiering.segments.values import QualityResult, Verification
from include.tiering.verification import verify_segments
from include.tiering.verification.record_verdicts import Subject
from tests.simulation.mutants.mutant import (
    Call,
    Mutant,
    Mutants,
    Patch,
    nothing,
    otherwise,
    refused,
    said,
    said_yes,
)

VERIFYING = Mutants()


_removes = StoredOrphans.remove


@VERIFYING.breaks("all-pass", "a segment that passes is what was written", "every segment passes")
def _all_pass() -> list[Patch]:
    return [(QualityResult, "fails", property(lambda _self: False))]


@VERIFYING.breaks(
    "clears-unread", "of two verifications a failure takes precedence", "the last verification counts", otherwise
)
def _clears_unread() -> list[Patch]:
    """Whoever clears does not ask what others found since."""
    return [(Verification, "clears", lambda self, result, _at_ms: result.rule not in self.unevaluated)]


@VERIFYING.breaks(
    "fails-what-goes", "a segment that is being deleted does not fail", "the rule is ignored", said(False)
)
def _fails_what_goes() -> list[Patch]:
    return [(sql_verdicts, "_is_finished", lambda row: row is not None)]


def _all_must_follow() -> list[Patch]:
    """What lies below our log start, too."""

    def instead(metadata: Any, _partition: Any, rows: Any) -> Iterator[Subject]:
        for row in sorted(rows, key=lambda row: (row.history, row.metadata.end_offset)):
            yield Subject(row, metadata.selected.finished_before(row))

    return [(verify_segments, "_with_predecessors", instead)]


def _some_follow_nothing(call: Call) -> bool:
    return any(subject.previous is None for subject in call.result)


@VERIFYING.breaks("audit-young", "an audit leaves young objects alone", "the rule is ignored", said_yes)
def _no_age_guard() -> list[Patch]:
    return [(plan_removals, "_too_young", nothing), (AuditMoment, "is_young", lambda *_: False)]


@VERIFYING.breaks("audit-complete", "a complete copy is offered, not removed", "a complete copy counts as an orphan")
def _complete_copies_too() -> list[Patch]:
    def instead(_attempt: Any, stored: Any, context: Any) -> Any:
        return rules._orphans(stored, "nobody knows it", context)

    return [(rules, "_complete", instead)]


@VERIFYING.breaks(
    "audit-brokers",
    "topics that the cluster says brokers tier are the brokers'",
    "the database's owner is used",
    said(True),
)
def _recorded_owners_alone() -> list[Patch]:
    real = SeenOwners._is_broker_tiered

    def instead(self: Any, topic_id: Any) -> bool:
        real(self, topic_id)
        return False

    return [(SeenOwners, "_is_broker_tiered", instead)]


@VERIFYING.breaks("audit-marker", "a removal checks the marker of the bucket", "the rule is ignored", refused)
def _marker_not_heeded() -> list[Patch]:
    def instead(self: Any, orphans: Any) -> Any:
        def read() -> None:
            with suppress(ForeignStoreError):
                self._require_ours()

        return _removes(StoredOrphans(self._store, self.layout, read), orphans)

    return [(StoredOrphans, "remove", instead)]


@VERIFYING.breaks("audit-known", "an audit removes nothing that is in the metadata", "the metadata is not read")
def _rows_not_asked() -> list[Patch]:
    """What is not a complete copy is an orphan, and marked for deletion whatever the metadata says."""

    def mark_for_deletion(_self: Any, _lease: Any, segment_ids: Any) -> frozenset[Any]:
        return frozenset(one.id for one in segment_ids)

    def young(self: Any, _at_ms: int) -> bool:
        return False

    return [
        (AuditService, "_all_segments", lambda _self: iter(())),
        (SqlRemovalStore, "mark_for_deletion", mark_for_deletion),
        (AuditMoment, "is_young", young),
    ]


VERIFYING += [
    Mutant(
        "all-must-follow",
        "a segment below the log start has to continue nothing",
        "the rule is ignored",
        _all_must_follow,
        _some_follow_nothing,
    ),
]
