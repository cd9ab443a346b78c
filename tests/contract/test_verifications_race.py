"""Of two verifications that are recorded at the same moment the failed one counts, on shared databases."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from sqlalchemy import Engine

from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, Verification
from tests.doubles.databases import SHARED, each_database
from tests.doubles.segments import fence_of, finish, partition_of, segment_of

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
