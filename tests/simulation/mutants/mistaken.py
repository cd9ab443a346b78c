"""Mutants of what keeps mistakes of people from costing an archive.

That a directory belongs to the topic whose id it holds is asked where log directories are read, which the world does
without: `tests/scenarios/test_misnamed_directory.py`. So is how much of a file's size Kafka allows:
`tests/scenarios/test_damaged_local_sizes.py`.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from sqlalchemy import not_, or_

from include.tiering.copying import finish_abandoned
from include.tiering.copying.copy_segment import SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies, abandoned_copies_of
from include.tiering.database.schema import leases
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import ForeignStoreError
from include.tiering.expiration import plan
from include.tiering.expiration import service as expiration_service
from include.tiering.expiration.checks import ReplacementCheck
from include.tiering.expiration.delete_segments import DeleteBatch
from include.tiering.model.ownership import AcceptedMarkers
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.claim_store import StoreClaim
from include.tiering.runs import database_clock, deletion_limits, sql_batches
from include.tiering.runs import store as work_store
from include.tiering.runs.batch import CancellationToken
from include.tiering.segments import topics
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy
from include.tiering.verification.record_verdicts import MissingSegments
from tests.simulation.mutants.mutant import (
    Call,
    Instead,
    Mutant,
    Mutants,
    Patch,
    found_one,
    nothing,
    otherwise,
    refused,
    said,
    unasked,
)

MISTAKEN = Mutants()


_sends = SegmentCopier._send_and_finish
_asks = DeleteBatch._still_planned
_limits = expiration_service.apply_deletion_limits  # type: ignore[attr-defined]
_requires = AcceptedMarkers.require
_completes = StoreClaim.complete


@MISTAKEN.breaks(
    "name-by-metadata",
    "a name that two topics have had belongs to neither while the cluster cannot be queried",
    "our own metadata are not asked",
    otherwise,
)
def _name_by_metadata_alone() -> list[Patch]:
    """What our own metadata say of the name is not asked."""

    def instead(topic_id: Any, named: Any, _holders: Any) -> str:
        return "" if named is None or named.topic_id == topic_id else "the cluster says so"

    return [(topics, "_name_taken_because", instead)]


@MISTAKEN.breaks(
    "migrate-anywhere",
    "migrate creates no marker where a store is known",
    "it creates one wherever there is none",
    said(True),
)
def _segments_forgotten() -> list[Patch]:
    return [(StoreIdentities, "has_segments", lambda _self: False)]


@MISTAKEN.breaks(
    "missing-is-lost",
    "a store that seems to have lost everything stops the verification",
    "segments whose objects are missing fail",
    found_one,
)
def _all_is_lost() -> list[Patch]:
    return [(MissingSegments, "_doubt", nothing)]


@MISTAKEN.breaks(
    "no-witness",
    "a segment is copied again only if another one is found in the store",
    "the rule is ignored",
    found_one,
)
def _no_witness() -> list[Patch]:
    return [(StoreWitness, "doubt", nothing)]


@MISTAKEN.breaks(
    "marker-of-before", "the marker is read after the last object", "what the marker said before is enough"
)
def _marker_of_before() -> list[Patch]:
    def instead(self: Any, *args: Any, **rest: Any) -> Any:
        return _sends(replace(self, storage=Instead(self.storage, check_marker=nothing)), *args, **rest)

    return [(SegmentCopier, "_send_and_finish", instead)]


@MISTAKEN.breaks("any-place", "keys are at the place that the marker names", "keys are where the settings say", refused)
def _any_place() -> list[Patch]:
    def require(self: Any, found: Any, _place: Any) -> None:
        _requires(self, found, None)

    def complete(self: Any, proposed: Any) -> Any:
        return _completes(replace(self, place=None), proposed)

    return [
        (AcceptedMarkers, "require_place", nothing),
        (AcceptedMarkers, "require", require),
        (StoreClaim, "complete", complete),
    ]


@MISTAKEN.breaks(
    "superseded-for-nothing", "the deletion limit counts every byte", "bytes of superseded segments are not counted"
)
def _superseded_for_nothing() -> list[Patch]:
    """Their bytes are not counted."""

    def instead(run_id: str, deletions: Any, *args: Any, **rest: Any) -> Any:
        plan = deletions.plan(run_id)
        gone: Counter[Uuid] = Counter()
        counted: Counter[Uuid] = Counter()
        others = []
        for planned in plan:
            topic_id = planned.topic_id_partition.topic_id
            superseded = [one for one in planned.deletions if one.reason == DeletionReason.SUPERSEDED]
            gone[topic_id] += sum(one.size_bytes for one in superseded)
            counted[topic_id] += len(superseded)
            kept = tuple(one for one in planned.deletions if one not in superseded)
            others.append(replace(planned, deletions=kept))

        def totals(*asked: Any, **named: Any) -> Any:
            return [
                replace(
                    one,
                    planned_bytes=one.planned_bytes - gone[one.topic_id],
                    planned_segments=one.planned_segments - counted[one.topic_id],
                )
                for one in deletions.totals(*asked, **named)
            ]

        return _limits(run_id, Instead(deletions, totals=totals, plan=lambda _run_id: others), *args, **rest)

    return [(expiration_service, "apply_deletion_limits", instead)]


@MISTAKEN.breaks(
    "replacement-believed",
    "superseded objects are deleted only after a check of the new copy",
    "the new copy is assumed to be there",
    refused,
)
def _replacement_believed() -> list[Patch]:
    return [(ReplacementCheck, "require", nothing)]


@MISTAKEN.breaks(
    "whole-is-abandoned", "a whole copy that was not finished is finished, or stays", "such a copy is deleted"
)
def _whole_is_abandoned() -> list[Patch]:
    """An abandoned copy is deleted by the next holder, whatever there is of it."""

    def instead(self: Any, replica_id: Any, planned: Any, *, fence: Any, limiter: Any) -> None:
        for row in abandoned_copies_of(self.copier.metadata, fence.topic_id_partition):
            self.copier.abandon(row.metadata, fence)

    return [(AbandonedCopies, "settle", instead)]


@MISTAKEN.breaks(
    "any-bytes",
    "an abandoned copy is finished if the source has the same bytes",
    "it is finished if the source has any segment there",
    said(False),
)
def _any_bytes_are_the_same() -> list[Patch]:
    return [(finish_abandoned, "_is_same", lambda *_args: True)]


@MISTAKEN.breaks(
    "parts-are-whole", "only a whole abandoned copy is finished", "every abandoned copy is finished", found_one
)
def _parts_are_whole() -> list[Patch]:
    return [(WholeCopy, "fault", lambda *_args: None)]


@MISTAKEN.breaks(
    "abandoned-is-nothing",
    "an abandoned copy expires when its offsets are elsewhere",
    "it expires as soon as it is old",
    refused,
)
def _abandoned_is_nothing() -> list[Patch]:
    return [(ReplacementCheck, "require_covered", nothing)]


@MISTAKEN.breaks("never-raised", "each run that plans raises the generation", "no run raises it")
def _never_raised() -> list[Patch]:
    return [(StoreClaim, "raise_generation", lambda self: self.generations.accepted().current)]


@MISTAKEN.breaks("any-generation", "a database that is behind is refused", "the store's id is enough", otherwise)
def _any_generation() -> list[Patch]:
    def accepts(self: Any, found: Any) -> bool:
        return found is not None and found.is_of_the_same_store(self.current)

    return [(AcceptedMarkers, "accepts", accepts)]


@MISTAKEN.breaks("nobody-helps", "the next run completes a pending generation", "a pending generation is left as it is")
def _without_help() -> list[Patch]:
    """What another process of the same database began is not gone on with."""

    def instead(self: Any) -> Any:
        token = Uuid.random(self.random_bytes)
        self.generations.accepted().require_place(self.place)
        proposed = self.generations.propose(token, self.place)
        if proposed.pending is None or proposed.pending.token != str(token):
            raise ForeignStoreError("another process has begun to raise the generation")
        return self.complete(proposed)

    return [(StoreClaim, "raise_generation", instead)]


def _taken_without_asking() -> list[Patch]:
    """The first time of each lease."""

    def instead(self: Any, lease: Any, planned: Any) -> Any:
        asked = self.__dict__.setdefault("_asked", set())
        if lease.fence in asked:
            return _asks(self, lease, planned)
        asked.add(lease.fence)
        return unasked(self, lease, planned)

    return [(DeleteBatch, "_still_planned", instead)]


def _keeps_some(call: Call) -> bool:
    return call.error is not None or call.result != call.args[2]


@MISTAKEN.breaks(
    "pauses-unseen",
    "a batch plans again when it comes out of a pause",
    "the batch goes on with the old plan",
    lambda call: call.result != 0,
)
def _pauses_unseen() -> list[Patch]:
    return [(CancellationToken, "pauses", property(lambda _self: 0))]


@MISTAKEN.breaks(
    "each-topic-alone",
    "deletions of all topics together need an approval",
    "each topic is evaluated alone",
    lambda call: bool(call.result),
)
def _each_topic_alone() -> list[Patch]:
    return [(deletion_limits, "total_excesses", lambda *_args: {})]


@MISTAKEN.breaks("any-clock", "a clock that others contradict deletes nothing", "such a clock is believed", refused)
def _any_clock() -> list[Patch]:
    return [(database_clock, "require_consistent_clock", nothing)]


@MISTAKEN.breaks(
    "endless-leases", "a lease that ends later than it may last is not live", "such a lease counts as live"
)
def _leases_without_bound() -> list[Patch]:
    """Live is what is not over. Statements that are kept otherwise are built anew."""

    def is_free(run_id: Any, batch_id: Any, now_ms: Any) -> Any:
        own = (leases.c.run_id == run_id) & (leases.c.batch_id == batch_id)
        return or_(not_(leases.c.expires_at_ms > now_ms), own)

    kept = ((sql_batches, "_take"), (work_store, "_next_claimable"), (work_store, "_waiting_longer"))
    anew: list[Patch] = [(place, name, getattr(place, name).__wrapped__) for place, name in kept]
    return [*anew, (sql_batches, "is_free", is_free)]


def _all_files_count() -> list[Patch]:
    """Whatever is doubtful about them."""
    return [(plan, "without_doubtful", lambda replica, _segments, _doubts: (replica, []))]


def _named_some(call: Call) -> bool:
    return bool(call.result[1])


MISTAKEN += [
    Mutant(
        "taken-without-asking",
        "a batch plans again when it takes a partition",
        "the rule is ignored",
        _taken_without_asking,
        _keeps_some,
    ),
    Mutant(
        "all-files-count",
        "a local file with an impossible size counts as 0",
        "such a file counts whole",
        _all_files_count,
        _named_some,
    ),
]
