"""What a verification says before it begins that it will read, and what it then reads, request by request."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import Depth, RemoteLogSegmentState, Verdict
from include.tiering.quotas.contract import QuotasInForce, UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.layouts.local_tiered_storage import LocalTieredStorageLayout
from include.tiering.remote_storage.object_store import ObjectStat
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import KIB
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.plan import CostOfReading, ReadCost
from tests.doubles.stored_log import PAYMENTS, rolled_segments

LAYOUTS: Final[dict[str, SegmentLayout]] = {
    "plain": AivenLayout(),
    "compressed": AivenLayout(AivenForm(compresses=True, chunk_size_bytes=8 * KIB)),
    "one object for each index": LocalTieredStorageLayout(),
}
ROUGHLY_BYTES: Final = 18 * KIB
"""What is estimated without the segment's own numbers: small objects, and the batches at both ends of a plain log."""


class CountedStore(FileObjectStore):
    """Counts requests and bytes. As a bucket does, it may keep the checksums of what was put."""

    def __init__(self, root: Path, *, keeps: bool, **options: Any) -> None:
        super().__init__(root, min_free_bytes=0, **options)
        self.keeps = keeps
        self.checksums: dict[str, int] = {}
        self.requests = self.absent = self.read_bytes = self.read_back_bytes = 0

    @property
    def keeps_checksums(self) -> bool:
        return self.keeps

    def put(self, key: str, body: Any, crc32c: int, **options: Any) -> bool:
        if self.keeps:
            self.checksums[key] = crc32c
        return super().put(key, body, crc32c, **options)

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        self.requests += 1
        found = super().stat(key, read_back=False)
        self.absent += found is None
        if found is None or key in self.checksums or not read_back:
            return found and ObjectStat(found.size_bytes, self.checksums.get(key))
        self.requests += 1
        self.read_back_bytes += found.size_bytes
        return super().stat(key, most_bytes=most_bytes)

    def read(self, key: str, first: int = 0, last: int | None = None, *, limiter: Any) -> Iterator[bytes]:
        self.requests += 1
        for block in super().read(key, first, last, limiter=limiter):
            self.read_bytes += len(block)
            yield block


def compared(
    tmp_path: Path, layout: SegmentLayout, depth: Depth, *, keeps: bool, origin: SegmentOrigin = SegmentOrigin.PLATFORM
) -> tuple[ReadCost, CountedStore]:
    """The estimate for three segments, and the store from which they were read."""
    store = CountedStore(tmp_path / "store", keeps=keeps, staging_prefix=layout.staging_prefix)
    storage = SegmentStorage(store, layout)
    rows = []
    for metadata, data in rolled_segments(PAYMENTS)[:3]:
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        finished = dataclasses.replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        rows.append(SegmentRow(finished, Verdict.NONE, data.log_crc32c, origin=origin))
    if origin is SegmentOrigin.BROKER:
        store.checksums.clear()
    cost = CostOfReading(storage.reading_costs)
    store.requests = 0
    for row in rows:
        cost.add(row.metadata, depth, row.origin)
        measure_segment(row, previous=None, storage=storage, limiter=UnlimitedBytes(), depth=depth)
    return cost.total(QuotasInForce(1, {})), store


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("depth", Depth)
@pytest.mark.parametrize("keeps", [True, False], ids=["in a bucket", "in a directory"])
def test_no_more_is_read_than_was_estimated(tmp_path: Path, layout: str, depth: Depth, keeps: bool) -> None:
    estimated, store = compared(tmp_path, LAYOUTS[layout], depth, keeps=keeps)
    absent = store.absent if estimated.read_back_bytes else 0
    assert estimated.requests - absent == store.requests, "an absent transaction index is not read back"
    assert store.read_bytes <= estimated.read_bytes <= store.read_bytes + 3 * (ROUGHLY_BYTES + 3 * 8 * KIB)
    assert store.read_back_bytes <= estimated.read_back_bytes
    assert bool(store.read_back_bytes) == (not keeps and depth is Depth.SHALLOW) == bool(estimated.read_back_bytes)
    if layout != "compressed":
        assert estimated.read_back_bytes <= store.read_back_bytes + 3 * KIB


def test_the_logs_of_brokers_are_read_back_from_a_bucket_too(tmp_path: Path) -> None:
    estimated, store = compared(tmp_path, LAYOUTS["plain"], Depth.SHALLOW, keeps=True, origin=SegmentOrigin.BROKER)
    assert estimated.requests == store.requests
    assert store.read_back_bytes <= estimated.read_back_bytes <= store.read_back_bytes + 3 * KIB
