"""Of two that change one segment at once exactly one wins, on databases that many may use."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from sqlalchemy import Engine

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import PlannedRemoval
from include.tiering.audit.sql_removals import SqlRemovalStore
from include.tiering.errors import IllegalTransitionError
from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, Verification
from tests.doubles.databases import SHARED, each_database
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, partition_of, segment_of

# Of two verifications that are recorded at the same moment the failed one counts, on shared databases.

A = partition_of("a")
RACES = 10


database_kind = each_database(SHARED)


def test_the_failed_one_counts(engine: Engine, metadata: RemoteLogMetadata) -> None:
    fence, together = fence_of(engine, A), Barrier(2)

    def recorded(verification: Verification) -> None:
        together.wait()
        metadata.record_verification(verification)

    with ThreadPoolExecutor(2) as threads:
        for number in range(RACES):
            segment = finish(metadata, segment_of(A, number, 10 * number, 10 * number + 9), fence)
            segment_id = segment.remote_log_segment_id
            broken = QualityResult(segment_id, "Q102", "critical", passed=False)
            before = metadata.segment(segment_id)
            verifications = Verification(segment_id, before=before), Verification(segment_id, (broken,), before=before)
            for one in [threads.submit(recorded, verification) for verification in verifications]:
                one.result()
            verified = metadata.segment(segment_id)
            assert (verified.verdict, metadata.quality_results(segment_id)) == (Verdict.FAILED, [broken])
            metadata.record_verification(Verification(segment_id, before=verified))


# Of marking an id for deletion and beginning a segment under it exactly one succeeds, on shared databases.

DELETION_RACES = 20


def test_exactly_one_wins(engine: Engine, metadata: RemoteLogMetadata) -> None:
    segments = [segment_of(A, number, 10 * number, 10 * number + 9) for number in range(DELETION_RACES)]
    store = SqlRemovalStore(engine, CLUSTER_ID)
    removals = [
        PlannedRemoval(one.remote_log_segment_id, FindingKind.ORPHAN, f"a/{one.start_offset}", None, 1, 1)
        for one in segments
    ]
    run = store.save_plan("run", removals)
    store.approve("run", run.plan_hash, author="me")
    lease, fence, together = store.claim("run", "batch", lease_ms=600_000), fence_of(engine, A), Barrier(2)
    assert lease is not None

    def mark_for_deletion(number: int) -> bool:
        together.wait()
        return bool(store.mark_for_deletion(lease, [segments[number].remote_log_segment_id]))

    def begin(number: int) -> bool:
        together.wait()
        try:
            metadata.add_segment(segments[number], fence=fence)
        except IllegalTransitionError:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        for number in range(DELETION_RACES):
            both = threads.submit(mark_for_deletion, number), threads.submit(begin, number)
            assert sorted(one.result() for one in both) == [False, True]
