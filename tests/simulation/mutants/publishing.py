"""Mutants of publishing."""

import math
from dataclasses import replace
from typing import Any

from include.tiering.database.transactions import TOKEN_RANDOM_BITS, FenceHolder, token_after
from include.tiering.metadata_sync import plan_publication, publish, sql_publication
from include.tiering.metadata_sync.plan_publication import PublicationStep
from include.tiering.metadata_sync.publish import Publisher, ReadBack
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.ownership import Fence, LeaseRole, PartitionLease, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState
from tests.simulation.mutants.mutant import Instead, Mutants, Patch, found_one, nothing, otherwise

PUBLISHING = Mutants()


_plans = plan_publication.plan_publication
_adds = plan_publication._additions
_publishes = Publisher.publish
_reads = publish.read_back
_claims = SqlPublicationStore.claim


@PUBLISHING.breaks("publish-finished-first", "STARTED before FINISHED in the topic", "FINISHED first")
def _finished_first() -> list[Patch]:
    def instead(segment: Any) -> Any:
        yield PublicationStep(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        yield PublicationStep(segment, RemoteLogSegmentState.COPY_SEGMENT_STARTED)

    return [(plan_publication, "_addition", instead)]


@PUBLISHING.breaks(
    "publish-unpassed", "published segments passed the quality check", "verdicts are not checked", found_one
)
def _unpassed_too() -> list[Patch]:
    return [(plan_publication, "_why_not", nothing)]


@PUBLISHING.breaks("publish-descending", "published segments ascend", "the newest segment first", otherwise)
def _descending() -> list[Patch]:
    def instead(*args: Any) -> Any:
        added, withheld = _adds(*args)
        return added[::-1], withheld

    return [(plan_publication, "_additions", instead)]


@PUBLISHING.breaks(
    "publish-anew",
    "a pending record is sent with the same bytes",
    "the pending record is dropped, and a new one is made",
)
def _another_record() -> list[Patch]:
    """What is pending is forgotten, and said in other words."""

    def instead(self: Any, lease: Any, journal: Any, _plan: Any) -> Any:
        if journal.pending is None:
            return journal
        self.journals.forget_pending(lease.fence)
        return self._reloaded(lease.fence.topic_id_partition)

    def blind(topic: Any, partition: Any, journal: Any, **rest: Any) -> Any:
        read = _reads(topic, partition, journal, **rest)
        return read if rest else replace(read, found=None)

    return [(Publisher, "_without_stale_intent", instead), (publish, "read_back", blind)]


@PUBLISHING.breaks("publish-without-lease", "a partition has one publisher", "no lease is required")
def _no_lease() -> list[Patch]:
    """Who has none is given a token as if."""

    def held(_connection: Any, _cluster_id: str, _fence: Any) -> FenceHolder:
        return FenceHolder("run", "batch")

    def claim(self: Any, partition: Any, *, run_id: str, batch_id: str, lease_ms: int) -> Any:
        now_ms = self.now_ms()
        given = _claims(self, partition, run_id=run_id, batch_id=batch_id, lease_ms=lease_ms)
        fence = Fence(partition, token_after(now_ms << TOKEN_RANDOM_BITS, 0), LeaseRole.PUBLISH)
        return given or PartitionLease(run_id=run_id, batch_id=batch_id, fence=fence, expires_at_ms=now_ms + lease_ms)

    def renewed(_self: Any, lease: Any) -> Any:
        return lease, math.inf

    return [
        (sql_publication, "hold_fence", held),
        (SqlPublicationStore, "claim", claim),
        (Publisher, "_renewed", renewed),
    ]


@PUBLISHING.breaks(
    "publish-any-owner", "only topics that are being handed over are published", "the owner is not checked"
)
def _any_owner() -> list[Patch]:
    def instead(self: Any, *args: Any, **rest: Any) -> Any:
        ours = Instead(self.registry, owner=lambda *_: TopicOwner.HANDING_OVER)
        return _publishes(replace(self, registry=ours), *args, **rest)

    return [(Publisher, "publish", instead), (SqlPublicationStore, "_require_owner", nothing)]


@PUBLISHING.breaks("publish-believed", "sent records are read back", "sent records are assumed to be there")
def _believed() -> list[Patch]:
    """What was written down is taken for sent."""

    def instead(topic: Any, partition: Any, journal: Any, *, end_offset: int | None = None) -> Any:
        read = _reads(topic, partition, journal, end_offset=end_offset)
        if journal.pending is None or read.found is not None:
            return read
        return ReadBack(max(read.next_offset, 1), max(read.next_offset, 1) - 1, read.repeated)

    return [(publish, "read_back", instead)]


@PUBLISHING.breaks("publish-poison", "no record stops a broker", "a segment begins as FINISHED")
def _poison() -> list[Patch]:
    """A segment begins in the state that it has, and nobody looks at the bytes."""
    real = plan_publication._record

    def instead(segment: Any, state: Any) -> Any:
        record: Any = real(segment, state)
        is_first = state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        return replace(record, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED) if is_first else record

    return [(plan_publication, "_record", instead), (plan_publication, "require_valid_record", nothing)]


@PUBLISHING.breaks("publish-above-log-start", "publishing begins at the log start", "publishing begins anywhere")
def _above_log_start() -> list[Patch]:
    """Whatever comes first is published first."""

    def instead(partition: Any, journal: Any, rows: Any, *, log_start_offset: int) -> Any:
        plan = _plans(partition, journal, rows, log_start_offset=log_start_offset)
        if plan.refused is None:
            return plan
        first = min(row.metadata.start_offset for row in rows.values())
        return _plans(partition, journal, rows, log_start_offset=first)

    return [(publish, "plan_publication", instead)]
