"""Batches of many segments, and the rate at which they are deleted."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, parse_header
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.handover.actions import stored_digest
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import RecordDigest
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.units import GIB, MIB
from tests.doubles.archive import Archive
from tests.doubles.damages.batches import batches_of
from tests.doubles.many_segments import replace_last_batch

# A producer sends a batch of a few KiB that is hundreds of MiB once opened. Its bytes are right: its segment is
# copied, passes, is served, and its partition goes on.

pytestmark = pytest.mark.integration

FIRST = f"{0:020d}.log"


class Deployment:
    """The command line over an archive whose first segment of orders-0 ends with a batch of zeros."""

    def __init__(self, directory: Path, size_bytes: int, codec: Codec) -> None:
        self.archive = Archive.of(directory)
        logs = [self.archive.partition_dir(broker, 0) / FIRST for broker in (1, 2)]
        self.base_offset = {replace_last_batch(log, size_bytes, codec) for log in logs if log.exists()}.pop()
        self.content = next(log.read_bytes() for log in logs if log.exists())

    def run(self, *arguments: str) -> tuple[int, Any]:
        """The exit code of a command with --json, and what it said."""
        options = ["--config", str(self.archive.config), *arguments, "--json"]
        done = CliRunner().invoke(cli, options, prog_name="./tiering")
        return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("codec", "size_bytes"),
    [(codec, 100 * MIB) for codec in Codec if codec] + [(Codec.ZSTD, GIB)],
    ids=["gzip", "snappy", "lz4", "zstd", "zstd-1-GiB"],
)
def test_a_batch_that_opens_larger_than_the_bound_is_no_damage(tmp_path: Path, codec: Codec, size_bytes: int) -> None:
    deployment = Deployment(tmp_path, size_bytes, codec)
    code, copied = deployment.run("copy")
    assert (code, copied["failed"]) == (0, [])
    for arguments in (["verify"], ["verify", "--all", "--depth", "deep"], ["verify", "--all"]):
        code, verified = deployment.run(*arguments)
        assert (code, verified["failed"], verified["not_served"]) == (0, [], []), arguments
        assert len(verified.get("not_opened", ())) == (size_bytes == GIB), arguments
    code, again = deployment.run("copy")
    assert (code, again["copied"], again["failed"]) == (0, [], [])
    code, plan = deployment.run("plan")
    assert code == 0
    assert "failed" not in json.dumps(plan)
    code, fetched = deployment.run("fetch", "orders", "0", "--output", str(tmp_path / "out"))
    assert code == 0
    assert (tmp_path / "out" / "orders-0" / FIRST).read_bytes() == deployment.content
    code, fetched = deployment.run(
        "fetch", "orders", "0", "--offset", str(deployment.base_offset), "--output", str(tmp_path / "out")
    )
    assert code == 0, fetched


def test_what_is_compared_at_a_handover_leaves_out_what_is_not_opened(tmp_path: Path) -> None:
    """And of what consumers get of the others everything is compared."""
    deployment = Deployment(tmp_path, 100 * MIB, Codec.ZSTD)
    assert deployment.run("copy")[0] == 0
    *batches, last = batches_of(deployment.content)
    large = OffsetRange(deployment.base_offset, parse_header(last).last_offset)
    others = RecordDigest()
    for batch in batches:
        if not (header := parse_header(batch)).is_control:
            for one in records_of(header, memoryview(batch)[HEADER_SIZE:], Decompressor()):
                others.add(one)
    with deployment.archive.open() as app:
        (partition,) = (one for one in app.adapters.stores.metadata.partitions() if one.partition == 0)
        for start, end in ((0, large.last), (large.first + 1, large.last), (0, large.first - 1)):
            tracemalloc.start()
            stored = stored_digest(
                app.adapters.stores.metadata, app.adapters.storage, lambda _: UnlimitedBytes(), partition, start, end
            )
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            left_out = OffsetRange(max(start, large.first), end)
            assert stored.not_opened == ((left_out,) if left_out.size > 0 else ())
            assert stored.digest == (others if start == 0 else RecordDigest()).result()
            assert peak < 128 * MIB


# Deletions go at their own rate, whatever the copy quota says.


def test_requests_wait_for_their_rate_and_not_for_the_copy_quota(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_ms=0)
    archive.set_default(tiering_delete_max_requests_per_second=1, remote_log_manager_copy_max_bytes_per_second=1)
    began = time.monotonic()
    _, result = archive.expire()
    seconds = time.monotonic() - began
    assert len(result.deleted) == 10
    assert archive.remote() == {}
    assert seconds > 1.8, "two requests, one a second; at the copy quota they would never end"
