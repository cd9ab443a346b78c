"""Attacks on compressed and encrypted segments: whoever can write to the store gets nothing taken for a broker's log.

Every attack is a finding of the verification, never an error that ends it, and never memory beyond a few chunks.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cramjam
import pytest

from include.tiering.errors import SegmentKeyError, StoredChunkError
from include.tiering.formats.aiven_chunks import chunk_count, encode_sizes
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.model.segments import Depth, Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.plan import PlannedVerification, VerificationOutcome, VerificationReason
from include.tiering.verification.verify_planned import measure_in_process, verify_planned
from include.tiering.verification.verify_segments import Measurer, verify_segments
from tests.doubles.key_pairs import key_files
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryMetadata, MemoryVerifications
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import CopiedPartition, copied_partition

FORM: Final = AivenForm(chunk_size_bytes=2_000, compresses=True, encrypts=True, with_txn_index_empty=True)
OBJECTS: Final = ("log", "indexes", "rsm-manifest")


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing([key_files(tmp_path, "one")], "one")


@pytest.fixture
def partition(tmp_path: Path, keys: KeyRing) -> CopiedPartition:
    return copied_partition(tmp_path / "store", segments=2, layout=AivenLayout(FORM, keys))


def broken(partition: CopiedPartition, depth: Depth) -> set[str]:
    measure = measure_segment(
        partition.rows[1], previous=None, storage=partition.storage, limiter=UnlimitedBytes(), depth=depth
    )
    return {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}


def replaced_by_that_of_another(suffix: str) -> Callable[[CopiedPartition], None]:
    def attack(partition: CopiedPartition) -> None:
        first, second = partition.rows
        partition.object_path(second, suffix).write_bytes(partition.object_path(first, suffix).read_bytes())

    return attack


def all_of_another(partition: CopiedPartition) -> None:
    for suffix in OBJECTS:
        replaced_by_that_of_another(suffix)(partition)


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[CopiedPartition], None]:
    def attack(partition: CopiedPartition) -> None:
        path = partition.object_path(partition.rows[1], "rsm-manifest")
        document = json.loads(path.read_bytes())
        change(document)
        path.write_text(json.dumps(document))

    return attack


def chunks_in_another_order(partition: CopiedPartition) -> None:
    """Each chunk has an authentication tag of its own; their order is in no tag."""
    row = partition.rows[1]
    manifest = json.loads(partition.object_path(row, "rsm-manifest").read_bytes())
    index = parse_manifest(json.dumps(manifest).encode()).chunk_index
    assert chunk_count(index) > 2
    path = partition.object_path(row, "log")
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[half:] + content[:half])


def a_byte_is_flipped(partition: CopiedPartition) -> None:
    path = partition.object_path(partition.rows[1], "log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def bombs_in_the_place_of_chunks(partition: CopiedPartition) -> None:
    """Unencrypted, so that nothing but the size in the manifest is in the way of 32 MiB of zeros for each chunk."""
    row = partition.rows[1]
    bomb = bytes(cramjam.zstd.compress(bytes(1 << 25)))
    assert len(bomb) < FORM.chunk_size_bytes
    manifest = partition.object_path(row, "rsm-manifest")
    count = chunk_count(parse_manifest(manifest.read_bytes()).chunk_index)
    document = json.loads(manifest.read_bytes())
    del document["encryption"]
    document["chunkIndex"]["transformedChunks"] = encode_sizes([len(bomb)] * count)
    manifest.write_text(json.dumps(document))
    partition.object_path(row, "log").write_bytes(bomb * count)


def _other_key(document: dict[str, Any]) -> None:
    pair, _ = document["encryption"]["dataKey"].split(":")
    document["encryption"]["dataKey"] = f"{pair}:{base64.b64encode(bytes(192)).decode()}"


ATTACKS: Final[dict[str, Callable[[CopiedPartition], None]]] = {
    "the log of another": replaced_by_that_of_another("log"),
    "the indexes of another": replaced_by_that_of_another("indexes"),
    "the manifest of another": replaced_by_that_of_another("rsm-manifest"),
    "all of another": all_of_another,
    "chunks in another order": chunks_in_another_order,
    "a flipped byte": a_byte_is_flipped,
    "bombs": bombs_in_the_place_of_chunks,
    "not encrypted any more": with_manifest(lambda document: document.pop("encryption")),
    "not compressed any more": with_manifest(lambda document: document.update(compression=False)),
    "another data key": with_manifest(_other_key),
    "a data key that is none": with_manifest(lambda document: document["encryption"].update(dataKey="one:!!!")),
    "other additional data": with_manifest(
        lambda document: document["encryption"].update(aad=base64.b64encode(bytes(32)).decode())
    ),
    "huge chunks": with_manifest(lambda document: document["chunkIndex"].update(originalChunkSize=2**30 - 1)),
    "a huge file": with_manifest(lambda document: document["chunkIndex"].update(originalFileSize=2**31 - 1)),
    "chunks of nothing": with_manifest(lambda document: document["chunkIndex"].update(originalChunkSize=0)),
    "a huge index": with_manifest(lambda document: document["segmentIndexes"]["offset"].update(size=2**31 - 1)),
    "an index before the beginning": with_manifest(
        lambda document: document["segmentIndexes"]["offset"].update(position=-1)
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_was_exchanged_is_found(partition: CopiedPartition, attack: Callable[[CopiedPartition], None]) -> None:
    assert broken(partition, Depth.DEEP) == set()
    attack(partition)
    assert broken(partition, Depth.DEEP)
    broken(partition, Depth.SHALLOW)  # It may not see what is inside of chunks, but it ends.


def test_a_bomb_is_stopped_at_the_size_of_its_chunk(partition: CopiedPartition) -> None:
    bombs_in_the_place_of_chunks(partition)
    reader = partition.storage.open_log_segment(partition.rows[1].metadata, limiter=UnlimitedBytes())
    with pytest.raises(StoredChunkError, match="chunk 0 of"):
        b"".join(reader.log(0, partition.rows[1].metadata.segment_size_bytes - 1))


@pytest.mark.parametrize("depth", Depth)
def test_a_key_that_is_not_there_says_nothing_about_the_segment(
    partition: CopiedPartition, tmp_path: Path, depth: Depth
) -> None:
    """It must not become a verdict: with the key, the segment is right."""
    without = CopiedPartition(
        partition.rows, SegmentStorage(FileObjectStore(partition.root), AivenLayout(FORM, KeyRing([], None))), tmp_path
    )
    with pytest.raises(SegmentKeyError, match="one"):
        broken(without, depth)
    assert partition.rows[1].verdict is Verdict.NONE


# A manifest that names a key pair of which nobody has heard: the segment keeps its verdict, all others get theirs.


def _of_an_unknown_pair(partition: CopiedPartition, number: int = 0) -> None:
    path = partition.object_path(partition.rows[number], "rsm-manifest")
    document = json.loads(path.read_bytes())
    _, _, wrapped = document["encryption"]["dataKey"].partition(":")
    document["encryption"]["dataKey"] = f"nobody:{wrapped}"
    path.write_text(json.dumps(document))


def _verdicts(metadata: MemoryMetadata) -> list[Verdict]:
    return [row.verdict for partition in metadata.partitions() for row in metadata.list_segments(partition)]


def test_the_check_of_a_copy_goes_on_behind_a_segment_of_an_unknown_key_pair(partition: CopiedPartition) -> None:
    _of_an_unknown_pair(partition)
    metadata = MemoryMetadata(partition.rows)
    with pytest.raises(SegmentKeyError, match=r"not verified, unlike all others: .*'nobody'"):
        verify_segments(metadata, partition.storage, PlainEvaluator(), quotas=NoQuotas(), clock=ManualClock())
    assert _verdicts(metadata) == [Verdict.NONE, Verdict.PASSED]


@pytest.mark.parametrize("depth", Depth)
def test_a_planned_run_goes_on_behind_segments_of_an_unknown_key_pair(
    partition: CopiedPartition, keys: KeyRing, tmp_path: Path, depth: Depth
) -> None:
    partition = copied_partition(tmp_path / "four", segments=4, layout=AivenLayout(FORM, keys))
    for number in (0, 2):
        _of_an_unknown_pair(partition, number)
    metadata, plans = MemoryMetadata(partition.rows), MemoryVerifications()
    segments = [row.metadata for row in partition.rows]
    plans.save_plan(
        "run",
        [
            PlannedVerification(one.remote_log_segment_id, one.start_offset, depth, VerificationReason.NEVER, 1_000)
            for one in segments
        ],
    )
    measure_all = measure_in_process(Measurer(metadata, partition.storage, NoQuotas()))
    for _ in range(2):
        with pytest.raises(SegmentKeyError, match=r"'nobody'.* \(and 1 more\)"):
            verify_planned("run", plans, metadata, PlainEvaluator(), measure_all, clock=ManualClock())
        assert _verdicts(metadata) == [Verdict.NONE, Verdict.PASSED, Verdict.NONE, Verdict.PASSED]
    totals = {total.outcome: total.segments for total in plans.totals("run")}
    assert (totals[VerificationOutcome.PLANNED], totals[VerificationOutcome.PASSED]) == (2, 2)
