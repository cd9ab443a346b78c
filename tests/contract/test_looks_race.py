"""Of two looks that are recorded at the same moment the one that convicts is heard, on databases that many may use."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from sqlalchemy import Engine

from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import Look, QualityResult, RemoteLogMetadata
from tests.doubles.databases import SHARED, each_database
from tests.doubles.segments import fence_of, finish, partition_of, segment_of

A = partition_of("a")
RACES = 10


database_kind = each_database(SHARED)


def test_the_one_that_convicts_is_heard(engine: Engine, metadata: RemoteLogMetadata) -> None:
    fence, together = fence_of(engine, A), Barrier(2)

    def recorded(look: Look) -> None:
        together.wait()
        metadata.record_look(look)

    with ThreadPoolExecutor(2) as threads:
        for number in range(RACES):
            segment = finish(metadata, segment_of(A, number, 10 * number, 10 * number + 9), fence)
            segment_id = segment.remote_log_segment_id
            broken = QualityResult(segment_id, "Q102", "critical", passed=False)
            before = metadata.segment(segment_id)
            looks = Look(segment_id, before=before), Look(segment_id, (broken,), before=before)
            for one in [threads.submit(recorded, look) for look in looks]:
                one.result()
            judged = metadata.segment(segment_id)
            assert (judged.verdict, metadata.quality_results(segment_id)) == (Verdict.FAILED, [broken])
            metadata.record_look(Look(segment_id, before=judged))
