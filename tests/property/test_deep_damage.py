"""Damaged segments are found."""

import dataclasses
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.log_batches import CheckedBatches, check_segment, find_log_end
from include.tiering.formats.record_batch import HEADER_SIZE, ControlType, iter_headers, parse_header
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.segments.contract import SegmentRow
from include.tiering.verification.measure_segment import measure_segment
from tests.doubles.memory_source import BytesSource
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.record_batches import CONTROL, data_batch, marker, record_batch, with_crc
from tests.doubles.stored_log import CopiedPartition, CountingLimiter, copied_partition

# Real segments, damaged in the store: a deep measure tells of it, whatever it is, and meets no other error. The
# rows know no checksum of the source, and the store's own is that of the damaged bytes: only what the bytes say of
# each other is left to find them by.

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


# The check pass against a slow parser of its own, on sound and on damaged segments.

_BASE_OFFSET = 1000
_CRC_COVERED_FROM = 21


@dataclass(frozen=True)
class Segment:
    """A sound segment that was made batch by batch."""

    log: bytes
    starts: tuple[int, ...]
    end_offset: int
    history: LeaderEpochs

    def batch_at(self, position: int) -> int:
        """Start of the batch that holds this byte."""
        return max(start for start in self.starts if start <= position)

    def check(self, log: bytes, block_bytes: int = 1024) -> CheckedBatches:
        return check_segment(
            BytesSource(log),
            base_offset=_BASE_OFFSET,
            end_offset=self.end_offset,
            leader_epochs=self.history,
            block_bytes=block_bytes,
        )


@st.composite
def segments(draw: st.DrawFn, *, gaps: bool = True) -> Segment:
    """Data, transactional and control batches of all sizes, in several leader epochs."""
    offset, epoch, log, starts = _BASE_OFFSET, 0, b"", []
    entries = [(0, 0)]
    for _ in range(draw(st.integers(1, 7))):
        if draw(st.integers(0, 3)) == 0:
            epoch += draw(st.integers(1, 3))
            entries.append((epoch, offset))
        offset += draw(st.integers(0, 5)) if gaps else 0
        starts.append(len(log))
        kind, count = draw(st.sampled_from(["plain", "data", "marker"])), draw(st.integers(1, 4))
        if kind == "plain":
            size_bytes = draw(st.sampled_from([0, 1, 300, 1023, 1024, 2500]))
            log += record_batch(
                offset, count=count, leader_epoch=epoch, records=draw(st.randoms()).randbytes(size_bytes)
            )
        elif kind == "data":
            log += data_batch(offset, 7, count=count, leader_epoch=epoch)
        else:
            control = draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
            log += marker(offset, 7, control, leader_epoch=epoch)
            count = 1
        offset += count
    return Segment(log, tuple(starts), offset - 1, LeaderEpochs.of(entries))


def _plainly_checked(log: bytes, end_offset: int) -> CheckedBatches:
    """The batches of a sound log, read in the most obvious way."""
    batches = []
    while log:
        length = struct.unpack(">i", log[8:12])[0]
        batches.append(log[: 12 + length])
        log = log[12 + length :]
    epochs: dict[int, int] = {}
    kinds = []
    for batch in batches:
        base = struct.unpack(">q", batch[:8])[0]
        epochs.setdefault(struct.unpack(">i", batch[12:16])[0], base)
        if struct.unpack(">h", batch[21:23])[0] & CONTROL:
            # Its key comes after 5 one-byte fields: length, attributes, timestamp and offset delta, key length.
            kinds.append(struct.unpack(">h", batch[61 + 5 + 2 : 61 + 5 + 4])[0])
    last = batches[-1]
    covered = {
        offset
        for batch in batches
        for base in struct.unpack(">q", batch[:8])
        for offset in range(base, base + struct.unpack(">i", batch[23:27])[0] + 1)
    }
    return CheckedBatches(
        size_bytes=sum(map(len, batches)),
        batch_count=len(batches),
        record_count=sum(struct.unpack(">i", batch[57:61])[0] for batch in batches),
        first_offset=struct.unpack(">q", batches[0][:8])[0],
        last_offset=struct.unpack(">q", last[:8])[0] + struct.unpack(">i", last[23:27])[0],
        max_timestamp_ms=max(struct.unpack(">q", batch[35:43])[0] for batch in batches),
        crc32c=google_crc32c.value(b"".join(batches)),
        first_missing_offset=min(set(range(_BASE_OFFSET, end_offset + 1)) - covered, default=None),
        leader_epochs=LeaderEpochs.of(epochs.items()),
        control_batch_count=len(kinds),
        abort_marker_count=kinds.count(0),
        commit_marker_count=kinds.count(1),
    )


@given(segments(), st.sampled_from([1024, 1025, 3000, 1 << 20]))
def test_the_same_metadata_as_the_obvious_parser(segment: Segment, block_bytes: int) -> None:
    assert segment.check(segment.log, block_bytes) == _plainly_checked(segment.log, segment.end_offset)


@given(segments())
def test_a_sound_log_ends_at_its_last_byte(segment: Segment) -> None:
    end = find_log_end(BytesSource(segment.log), base_offset=_BASE_OFFSET)
    assert (end.valid_bytes, end.log_end_offset, end.torn) == (len(segment.log), segment.end_offset + 1, False)
    assert [batch.position for batch in iter_headers(BytesSource(segment.log))] == list(segment.starts)


@given(segments(), st.data())
def test_a_flipped_bit_under_a_crc_is_found_at_its_batch(segment: Segment, data: st.DataObject) -> None:
    position = data.draw(
        st.integers(0, len(segment.log) - 1).filter(lambda p: p - segment.batch_at(p) >= _CRC_COVERED_FROM)
    )
    damaged = _flipped(segment.log, position, data.draw(st.integers(0, 7)))
    with pytest.raises(FormatError) as caught:
        segment.check(damaged)
    assert caught.value.position == segment.batch_at(position)
    assert "CRC-32C" in caught.value.message
    end = find_log_end(BytesSource(damaged), base_offset=_BASE_OFFSET)
    assert (end.valid_bytes, end.torn) == (segment.batch_at(position), True)


@given(segments(gaps=False), st.data())
def test_a_flipped_bit_outside_a_crc_is_found_by_its_neighbours(segment: Segment, data: st.DataObject) -> None:
    """Offset, length, epoch, magic or the CRC itself. Where batches follow each other without gaps up to a known end,
    an offset can be neither lowered nor raised."""
    number = data.draw(st.integers(0, len(segment.starts) - 1))
    position = segment.starts[number] + data.draw(st.integers(0, _CRC_COVERED_FROM - 1))
    damaged = _flipped(segment.log, position, data.draw(st.integers(0, 7)))
    with pytest.raises(FormatError) as caught:
        segment.check(damaged)
    assert caught.value.position in segment.starts[number : number + 2]


@given(segments(), st.data())
def test_a_cut_is_found_unless_it_is_between_two_batches(segment: Segment, data: st.DataObject) -> None:
    size_bytes = data.draw(st.integers(0, len(segment.log) - 1))
    cut = segment.log[:size_bytes]
    if size_bytes in segment.starts:
        assert segment.check(cut).last_offset < segment.end_offset
    else:
        with pytest.raises(FormatError) as caught:
            segment.check(cut)
        assert caught.value.position == segment.batch_at(size_bytes)
    end = find_log_end(BytesSource(cut), base_offset=_BASE_OFFSET)
    assert end.valid_bytes == max(start for start in segment.starts if start <= size_bytes)
    assert end.torn == (size_bytes not in segment.starts)


@given(segments(), st.data())
def test_bytes_between_two_batches_are_found(segment: Segment, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([*segment.starts, len(segment.log)]))
    extra = data.draw(st.binary(min_size=1, max_size=100))
    with pytest.raises(FormatError) as caught:
        segment.check(segment.log[:at] + extra + segment.log[at:])
    assert caught.value.position == at


@given(segments(), st.data())
def test_batches_in_another_order_or_twice_are_found(segment: Segment, data: st.DataObject) -> None:
    ends = (*segment.starts[1:], len(segment.log))
    batches = [segment.log[start:end] for start, end in zip(segment.starts, ends, strict=True)]
    shuffled = data.draw(st.permutations(batches))
    if shuffled != batches:
        with pytest.raises(FormatError):
            segment.check(b"".join(shuffled))
    twice = data.draw(st.integers(0, len(batches) - 1))
    with pytest.raises(FormatError):
        segment.check(b"".join(batches[: twice + 1] + batches[twice:]))


@given(st.binary(max_size=4000), st.integers(0, 2**63 - 1))
@example(bytes(4000), 0)
def test_random_bytes_are_no_segment(data: bytes, base_offset: int) -> None:
    source = BytesSource(data)
    if data:
        with pytest.raises(FormatError):
            check_segment(source, base_offset=base_offset, end_offset=2**63 - 1, leader_epochs=None)
    list(iter_headers(source))


def _flipped(log: bytes, position: int, bit: int) -> bytes:
    damaged = bytearray(log)
    damaged[position] ^= 1 << bit
    return bytes(damaged)
