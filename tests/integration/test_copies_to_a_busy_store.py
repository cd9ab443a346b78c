"""A batch with several transfers in flight to a real S3 server that asks to slow down for ten seconds."""

import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.model.segments import TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.location import StoreAccess, open_storage
from include.tiering.remote_storage.object_store import S3Credentials
from include.tiering.segments.stored_copies import WholeCopy
from tests.doubles.databases import migrated_database
from tests.doubles.deployment import World
from tests.doubles.quotas import SameLimiter
from tests.doubles.s3_proxies import Refusal, Spoiler, refusing_s3_proxy
from tests.doubles.s3_server import ACCESS_KEY, NO_VERSITYGW, SECRET_KEY, find_versitygw, raw_client, versitygw_server

BUCKET = "busy"
BUSY_SECONDS = 10.0
KEYS = S3Credentials(ACCESS_KEY, SECRET_KEY)
REFUSALS = {
    "writes": Refusal(re.compile("(PUT|POST) "), 503, "SlowDown"),
    "everything": Refusal(re.compile(""), 503, "SlowDown"),
    "half of everything": Refusal(re.compile(""), 503, "SlowDown", one_of=2),
}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[str, Spoiler]]:
    binary = find_versitygw()
    if binary is None:
        pytest.skip(NO_VERSITYGW)
    with versitygw_server(binary, tmp_path / "kept") as server:
        server.make_bucket(BUCKET)
        with refusing_s3_proxy(server.endpoint_url, raw_client(server.endpoint_url)) as found:
            yield found


@pytest.mark.parametrize("refused", REFUSALS)
def test_nothing_is_out_of_order_and_nothing_dangles(proxy: tuple[str, Spoiler], tmp_path: Path, refused: str) -> None:
    endpoint_url, spoiler = proxy
    with migrated_database(tmp_path) as engine:
        world = World(engine, tmp_path)
        world.storage = open_storage(f"s3://{BUCKET}/tiered", StoreAccess(endpoint_url, credentials=KEYS))
        replicas = [world.source.add("orders", number, segments=12, size_bytes=20_000) for number in range(3)]
        finished: dict[TopicIdPartition, list[int]] = defaultdict(list)
        ends = threading.Timer(BUSY_SECONDS, lambda: setattr(spoiler, "refusal", None))

        def reached(step: CopyStep, partition: TopicIdPartition, base_offset: int) -> None:
            if step is CopyStep.FINISHED:
                finished[partition].append(base_offset)
                if sum(map(len, finished.values())) == 5:
                    spoiler.refusal = REFUSALS[refused]
                    ends.start()

        world._reached = reached  # type: ignore[assignment, method-assign]
        world.plan()
        world.batch(transfers=8)
        ends.join()
        assert world.storage.slow_downs > 0
        for number in range(3):  # what failed for good in the meantime is planned again
            world.plan(f"again-{number}")
            world.batch(f"again-{number}", f"again-{number}/0", transfers=8)
        whole = WholeCopy(world.storage, SameLimiter(UnlimitedBytes()))
        for replica in replicas:
            partition = replica.topic_id_partition
            assert finished[partition] == sorted(finished[partition])
            rows = world.metadata.list_segments(partition)
            assert [row.metadata.start_offset for row in rows if row.metadata.is_finished] == list(range(0, 120, 10))
            assert [fault for row in rows if (fault := whole.fault(row)) is not None] == []
