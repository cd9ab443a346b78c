"""Both depths on a real S3 server, which keeps the checksum that it computed when an object arrived."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.model.segments import Depth, RemoteLogSegmentState, Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.s3_server import CREDENTIALS, versitygw_or_skip
from tests.doubles.storage_backdoor import Backdoor
from tests.doubles.stored_log import PAYMENTS, CountingLimiter, rolled_segments

pytestmark = pytest.mark.integration


@dataclasses.dataclass(frozen=True)
class CopiedToS3:
    storage: SegmentStorage
    backdoor: Backdoor
    rows: list[SegmentRow]

    def key(self, number: int, suffix: str) -> str:
        (found,) = (key for key in self.backdoor.raw_keys() if key.endswith(f"{self._id(number)}.{suffix}"))
        return found

    def measured(self, number: int, depth: Depth) -> tuple[SegmentMeasure, set[str]]:
        limiter = CountingLimiter()
        previous = self.rows[number - 1].metadata if number else None
        measure = measure_segment(
            self.rows[number], previous=previous, storage=self.storage, limiter=limiter, depth=depth
        )
        assert measure.bytes_read == limiter.total_bytes
        return measure, {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}

    def _id(self, number: int) -> str:
        return str(self.rows[number].metadata.remote_log_segment_id.id)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CopiedToS3]:
    directory: Path = tmp_path_factory.mktemp("versitygw")
    with versitygw_or_skip(directory) as server, pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        server.make_bucket("archive")
        storage = SegmentStorage(
            S3ObjectStore("archive", "", endpoint_url=server.endpoint_url),
            AivenLayout(AivenForm(with_txn_index_empty=True)),
        )
        rows = []
        for metadata, data in rolled_segments(PAYMENTS)[:3]:
            storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
            finished = dataclasses.replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
            rows.append(SegmentRow(finished, Verdict.NONE, data.log_crc32c))
        yield CopiedToS3(storage, server.backdoor("archive", ""), rows)


@pytest.mark.parametrize("depth", Depth)
def test_what_was_copied_is_sound(copied: CopiedToS3, depth: Depth) -> None:
    for number in range(3):
        measure, broken = copied.measured(number, depth)
        assert broken == set(), measure.remarks
    whole = sum(len(copied.backdoor.raw_read(copied.key(2, s))) for s in ("log", "indexes", "rsm-manifest"))
    assert (measure.bytes_read == whole) == (depth is Depth.DEEP)


def test_bytes_that_rot_on_the_disk_of_the_server_show_when_they_are_read(copied: CopiedToS3) -> None:
    """The server goes on saying what it computed once."""
    key = copied.key(1, "log")
    content = copied.backdoor.raw_read(key)
    middle = len(content) // 2
    copied.backdoor.raw_write(key, content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
    try:
        assert copied.measured(1, Depth.SHALLOW)[1] == set()
        assert copied.measured(1, Depth.DEEP)[1] == {"Q105", "Q262"}
    finally:
        copied.backdoor.raw_write(key, content)


@pytest.mark.parametrize("depth", Depth)
def test_an_index_that_rots_shows_at_once(copied: CopiedToS3, depth: Depth) -> None:
    key = copied.key(1, "indexes")
    content = copied.backdoor.raw_read(key)
    copied.backdoor.raw_write(key, content[:7] + bytes([content[7] ^ 4]) + content[8:])
    try:
        _, broken = copied.measured(1, depth)
    finally:
        copied.backdoor.raw_write(key, content)
    assert "Q103" in broken
    assert ("Q204" in broken) == (depth is Depth.DEEP)
