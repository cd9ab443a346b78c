"""What a look-up of one offset costs in requests, counted as they leave for a real S3 server; what is kept of it."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import App, open_app
from include.tiering.model.segments import Verdict
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.reading.plan_scan import Bound, BoundKind, PartitionScan, ScanRequest
from include.tiering.settings.fields import index_cache_directory
from tests.doubles.archive import settings_of
from tests.doubles.marker_requests import counted, s3_deployment
from tests.doubles.s3_server import versitygw_or_skip

pytestmark = pytest.mark.integration

OFFSET = 300
"""In the middle of a segment of orders-0."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The settings file of a deployment with all segments copied and served."""
    directory = tmp_path_factory.mktemp("requests")
    with versitygw_or_skip(directory / "s3") as server:
        config = s3_deployment(directory, server)
        with open_app(settings_of(config)) as app:
            app.set_up.migrate()
            app.copying.plan("copy")
            for segment in app.copying.run_batch("copy", "copy/0").copied:
                app.adapters.stores.metadata.record_verdict(segment.segment_id, Verdict.PASSED)
        yield config


@pytest.fixture
def config(copied: Path) -> Path:
    """Nothing was read before on this host."""
    for entry in kept(copied):
        entry.unlink()
    return copied


def kept(config: Path) -> list[Path]:
    directory = index_cache_directory(settings_of(config).metadata.url.get_secret_value(), {})
    assert directory.parent == config.parent
    return list(directory.iterdir()) if directory.exists() else []


def fetch(app: App, offset: int = OFFSET) -> tuple[FetchedRecords, int]:
    """The answer, and how many requests it took."""
    (partition,) = (each for each in app.adapters.stores.metadata.partitions() if each.partition == 0)
    with counted(app) as requests:
        (answer,) = app.reading.fetch_records([PartitionFetch(partition, offset, 1)])
        taken = requests.take()
    assert answer.error is None
    assert answer.base_offset <= offset < answer.next_offset
    assert set(taken) <= {("GET object", "")}
    return answer, sum(taken.values())


def fetch_in_a_new_process(config: Path, offset: int) -> tuple[bytes, int]:
    with open_app(settings_of(config)) as app:
        answer, requests = fetch(app, offset)
        return bytes(answer.records), requests


def test_a_look_up_takes_three_requests_and_then_one(config: Path) -> None:
    with open_app(settings_of(config)) as app:
        (first, cold), (_, warm), (_, neighbour) = fetch(app), fetch(app), fetch(app, OFFSET + 20)
    assert (cold, warm, neighbour) == (3, 1, 1)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        records, in_a_new_process = process.submit(fetch_in_a_new_process, config, OFFSET).result()
    assert (records, in_a_new_process) == (bytes(first.records), 1)


@pytest.mark.parametrize("damage", ["cut", "zeros", "another"])
def test_entries_that_were_damaged_are_read_from_the_store(config: Path, damage: str) -> None:
    wanted, _ = fetch_in_a_new_process(config, OFFSET)
    entries = kept(config)
    assert len(entries) == 2
    contents = [entry.read_bytes() for entry in entries]
    for entry, content, other in zip(entries, contents, reversed(contents), strict=True):
        entry.write_bytes({"cut": content[:-3], "zeros": bytes(len(content)), "another": other}[damage])
    assert fetch_in_a_new_process(config, OFFSET) == (wanted, 3)
    assert [entry.read_bytes() for entry in entries] == contents
    assert fetch_in_a_new_process(config, OFFSET) == (wanted, 1)


def test_entries_of_a_store_that_was_filled_anew_are_read_again(config: Path) -> None:
    """They are whole, but say what the objects under the same keys do not say any more."""
    wanted, _ = fetch_in_a_new_process(config, OFFSET)
    with open_app(settings_of(config)) as app:
        storage: Any = app.reading._storage
        (index,) = (entry for entry in kept(config) if not entry.name.endswith("end"))
        (key,) = (
            key
            for partition in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(partition)
            for kind, key in storage._layout.keys(row.metadata)
            if index.name.startswith(storage._cache._stem(key))
        )
        first, last = map(int, index.name.split(".")[1:])
        index.unlink()
        storage._cache.read(key, first, last, lambda: b"\xff" * (last + 1 - first))
    assert fetch_in_a_new_process(config, OFFSET) == (wanted, 3)
    assert fetch_in_a_new_process(config, OFFSET) == (wanted, 1)


def test_a_plan_that_was_made_before_takes_no_request(config: Path) -> None:
    """A scan from the middle of a segment needs its offset index, one from a time its time index and a few batches."""
    taken = []
    for _ in range(2):
        with open_app(settings_of(config)) as app, counted(app) as requests:
            (partition,) = (each for each in app.adapters.stores.metadata.partitions() if each.partition == 0)
            scan = PartitionScan(partition, start=Bound(BoundKind.OFFSET, OFFSET))
            plan = app.reading.plan_scan(ScanRequest((scan,), committed=True))
            taken.append(sum(requests.take().values()))
            assert plan.tasks[0][0].first_offset == OFFSET
    assert taken == [4, 0]
