"""The check pass against a slow parser of its own, on sound and on damaged segments."""

import struct
from dataclasses import dataclass

import google_crc32c
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.log_batches import CheckedBatches, check_segment, find_log_end
from include.tiering.formats.record_batch import ControlType, iter_headers
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import CONTROL, data_batch, marker, record_batch

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
