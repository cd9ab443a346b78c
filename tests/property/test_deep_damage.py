"""Real segments, damaged in the store: a deep measure tells of it, whatever it is, and meets no other error.

The rows know no checksum of the source, and the store's own is that of the damaged bytes: only what the bytes say of
each other is left to find them by.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from include.tiering.formats.record_batch import HEADER_SIZE, parse_header
from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measure_segment import measure_segment
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.record_batches import with_crc
from tests.doubles.stored_log import CopiedPartition, CountingLimiter, copied_partition

_OUTSIDE_OF_THE_CRC = 21


class Victim(NamedTuple):
    """One segment whose objects a test may overwrite: `whole` is put back after each example."""

    partition: CopiedPartition
    row: SegmentRow
    whole: dict[str, bytes]

    def broken(self, *, size_bytes: int | None = None, **objects: bytes) -> set[str]:
        """Rules that a deep measure breaks with these objects in the place of the true ones; `size_bytes`: what the
        metadata says of the log, if not the truth."""
        row = self.row
        if size_bytes is not None:
            row = dataclasses.replace(row, metadata=dataclasses.replace(row.metadata, segment_size_bytes=size_bytes))
        names = {suffix.replace("-", "_"): suffix for suffix in self.whole}
        try:
            for name, content in objects.items():
                self.partition.object_path(self.row, names[name]).write_bytes(content)
            limiter = CountingLimiter()
            measure = measure_segment(
                row, previous=None, storage=self.partition.storage, limiter=limiter, depth=Depth.DEEP
            )
        finally:
            for name in objects:
                self.partition.object_path(self.row, names[name]).write_bytes(self.whole[names[name]])
        assert measure.bytes_read == limiter.total_bytes
        return {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}


@pytest.fixture(scope="module", params=["payments.v1-eu-0", "orders-0"])
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Victim:
    """The second segment: with aborted transactions, or with every codec and three leader epochs."""
    partition = copied_partition(tmp_path_factory.mktemp("store"), request.param, segments=3)
    row = dataclasses.replace(partition.rows[1], log_crc32c=None)
    suffixes = ("log", "indexes", "rsm-manifest")
    return Victim(partition, row, {s: partition.object_path(row, s).read_bytes() for s in suffixes})


def starts_of(log: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += parse_header(log, at).size_bytes
    return starts


def flipped(content: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return bytes(changed)


def test_without_damage_nothing_is_told(victim: Victim) -> None:
    assert victim.broken() == set()
    assert victim.broken(log=victim.whole["log"]) == set()


@settings(max_examples=30)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_any_flipped_bit_of_the_log_is_told(victim: Victim, where: float, bit: int) -> None:
    log = victim.whole["log"]
    assert victim.broken(log=flipped(log, int(where * len(log)), bit))


@settings(max_examples=30)
@given(st.data())
def test_any_flipped_bit_outside_of_a_crc_is_told(victim: Victim, data: st.DataObject) -> None:
    """Offset, length, leader epoch, magic, the CRC itself: most of a log's bytes are none of these."""
    log = victim.whole["log"]
    position = data.draw(st.sampled_from(starts_of(log))) + data.draw(st.integers(0, _OUTSIDE_OF_THE_CRC - 1))
    found = victim.broken(log=flipped(log, position, data.draw(st.integers(0, 7))))
    assert found & {"Q261", "Q262", "Q263", "Q264", "Q265"}


@settings(max_examples=40)
@given(st.data())
def test_headers_whose_crc_was_made_right_again_meet_no_error(victim: Victim, data: st.DataObject) -> None:
    """Hostile lengths, counts and offsets; all but timestamps, sequences and the like contradict something."""
    log = victim.whole["log"]
    start = data.draw(st.sampled_from(starts_of(log)))
    end = start + parse_header(log, start).size_bytes
    batch = bytearray(log[start:end])
    at = data.draw(st.integers(0, HEADER_SIZE - 1))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    batch[at : at + len(noise)] = noise[: len(batch) - at]
    victim.broken(log=log[:start] + with_crc(bytes(batch)) + log[end:])


@pytest.mark.parametrize(
    ("at", "field", "rules"),
    [
        (23, (2**31 - 1).to_bytes(4, "big"), {"Q264"}),
        (57, (2**31 - 1).to_bytes(4, "big"), {"Q266", "Q267"}),
        (57, b"\xff\xff\xff\xff", {"Q266"}),
        (57, b"\0\0\0\0", {"Q267", "Q269"}),
        (35, (2**62).to_bytes(8, "big"), {"Q267", "Q268"}),
        (21, b"\x00\x07", {"Q266"}),
        (21, b"\x7f\x80", {"Q266"}),
        (43, b"\x80" + bytes(7), {"Q266"}),
    ],
)
def test_headers_with_a_right_crc_and_wrong_contents(victim: Victim, at: int, field: bytes, rules: set[str]) -> None:
    log = victim.whole["log"]
    start, end = starts_of(log)[1:3]
    batch = log[start : start + at] + field + log[start + at + len(field) : end]
    found = victim.broken(log=log[:start] + with_crc(batch) + log[end:])
    assert rules <= found
    assert "Q262" not in found


def whole_batches(action: Callable[[list[bytes], int], None]) -> Callable[[bytes, int], bytes]:
    def act(log: bytes, number: int) -> bytes:
        starts = starts_of(log)
        batches = [log[a:b] for a, b in zip(starts, [*starts[1:], len(log)], strict=True)]
        action(batches, number % len(batches))
        return b"".join(batches)

    return act


def _swap(batches: list[bytes], number: int) -> None:
    other = (number + 1) % len(batches)
    batches[number], batches[other] = batches[other], batches[number]


@pytest.mark.parametrize(
    ("action", "rules"),
    [
        (lambda batches, n: batches.pop(n), {"Q263"}),
        (lambda batches, n: batches.insert(n, batches[n]), {"Q264"}),
        (_swap, {"Q264"}),
    ],
    ids=["lost", "twice", "swapped"],
)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_whole_batches_lost_repeated_or_moved(
    victim: Victim, action: Callable[[list[bytes], int], None], rules: set[str], number: int
) -> None:
    log = whole_batches(action)(victim.whole["log"], number)
    found = victim.broken(log=log, size_bytes=len(log))
    assert rules <= found
    assert "Q262" not in found


@settings(max_examples=30)
@given(st.sampled_from(["cut", "insert", "overwrite"]), st.floats(0, 1, exclude_max=True), st.binary(min_size=1))
@example("insert", 0.99, bytes(17))
def test_any_damage_of_the_log_is_told(victim: Victim, action: str, where: float, noise: bytes) -> None:
    log = victim.whole["log"]
    at = int(where * len(log))
    behind = {"cut": len(log), "insert": at, "overwrite": at + len(noise)}[action]
    changed = log[:at] + (b"" if action == "cut" else noise) + log[behind:]
    if changed != log:
        assert victim.broken(log=changed)


@settings(max_examples=40)
@given(st.data())
def test_damaged_indexes_and_manifests_meet_no_error(victim: Victim, data: st.DataObject) -> None:
    """Offsets, positions, markers and counts of any size."""
    suffix = data.draw(st.sampled_from(["indexes", "rsm-manifest"]))
    content = victim.whole[suffix]
    at = data.draw(st.integers(0, len(content) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=20))
    damaged: dict[str, Any] = {suffix.replace("-", "_"): content[:at] + noise + content[at + len(noise) :]}
    victim.broken(**damaged)


def entries_in(victim: Victim) -> Iterator[tuple[str, int, int]]:
    """(index, first byte, behind the last byte) of what lies in the indexes object, in its order."""
    manifest = victim.whole["rsm-manifest"].decode()
    for name in ("offset", "timestamp", "producerSnapshot", "transaction"):
        _, _, place = manifest.partition(f'"{name}":{{"position":')
        if place:
            position, _, rest = place.partition(',"size":')
            yield name, int(position), int(position) + int(rest.partition("}")[0])


def is_left_open(index: str, at: int) -> bool:
    """The last byte of a time index entry's offset may name another record of the same batch, as brokers before 3.8
    did; that of a last stable offset one that an earlier transaction holds back, which the segment does not know."""
    return (index == "timestamp" and at % 12 == 11) or (index == "transaction" and at % 34 == 33)


def test_a_flipped_bit_of_any_index_byte_is_told(victim: Victim) -> None:
    for index, first, behind in entries_in(victim):
        for at in range(first, behind):
            if not is_left_open(index, at - first):
                assert victim.broken(indexes=flipped(victim.whole["indexes"], at, at % 8)), (index, at - first)


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_an_object_of_another_segment_is_told(victim: Victim, suffix: str) -> None:
    other = victim.partition.object_path(victim.partition.rows[2], suffix).read_bytes()
    changed: dict[str, Any] = {suffix.replace("-", "_"): other}
    assert victim.broken(**changed)


def test_an_index_of_absurd_size_is_not_held(victim: Victim) -> None:
    path = victim.partition.object_path(victim.row, "indexes")
    with path.open("r+b") as file:
        file.truncate(65 * 2**20)
    try:
        measure = measure_segment(
            victim.row,
            previous=None,
            storage=victim.partition.storage,
            limiter=UnlimitedBytes(),
            depth=Depth.DEEP,
        )
    finally:
        path.write_bytes(victim.whole["indexes"])
    assert measure.offset_index_wrong_entries is None
    assert measure.log_wrong_crcs == 0
