"""Whole batches, and the last stable offset, against plain models."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.record_batch import ControlType, WholeBatches
from include.tiering.kafka.log_dirs.dirs import list_partition
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.log_tail import find_last_stable_offset
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.record_batches import data_batch, marker, record_batch

# Batches out of blocks of any size against the plain rule, and damage that is named where it is.

Shape = list[tuple[int, int]]
"""Records and bytes of a value, for each batch."""

shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=8)
blocks = st.lists(st.integers(1, 300), min_size=1, max_size=10)
FIRST_OFFSET = 100


def log_of(shape: Shape, base_offset: int = FIRST_OFFSET) -> list[tuple[int, int, bytes]]:
    """(first offset, last offset, bytes) of each batch."""
    batches = []
    for count, value_bytes in shape:
        batch = record_batch(base_offset, count=count, value_bytes=value_bytes)
        batches.append((base_offset, base_offset + count - 1, batch))
        base_offset += count
    return batches


def expected(batches: list[tuple[int, int, bytes]], offset: int, max_bytes: int) -> bytes:
    """The rule in one breath: from the batch that reaches the offset, while they fit, the first in any case."""
    taken = b""
    for _, last, batch in batches:
        if last < offset:
            continue
        if taken and len(taken) + len(batch) > max_bytes:
            break
        taken += batch
    return taken


def fed(collected: WholeBatches, content: bytes, sizes: list[int], offset: int) -> None:
    """As a reader does: ranges that are asked for, in blocks as they come."""
    collected.begin(0, len(content), offset)
    position = turn = 0
    while collected.missing_bytes and position < len(content):
        end = min(position + collected.missing_bytes, len(content))
        while position < end:
            size_bytes = min(sizes[turn % len(sizes)], end - position)
            collected.feed(content[position : position + size_bytes])
            position += size_bytes
            turn += 1
    collected.end()


@given(shape=shapes, sizes=blocks, data=st.data())
def test_what_is_collected_is_what_the_rule_says(shape: Shape, sizes: list[int], data: st.DataObject) -> None:
    batches = log_of(shape)
    last_offset = batches[-1][1]
    offset = data.draw(st.integers(FIRST_OFFSET, last_offset))
    max_bytes = data.draw(st.integers(1, 1_500))
    collected = WholeBatches(offset, max_bytes)
    fed(collected, b"".join(batch for _, _, batch in batches), sizes, offset)
    wanted = expected(batches, offset, max_bytes)
    assert bytes(collected.records) == wanted
    first = next(batch for batch in batches if batch[1] >= offset)
    assert collected.base_offset == first[0]
    assert collected.next_offset == next(last for _, last, batch in batches if wanted.endswith(batch)) + 1


@given(first=shapes, second=shapes, overlap=st.integers(0, 3), sizes=blocks, max_bytes=st.integers(1, 3_000))
def test_the_next_segment_goes_on_behind_what_the_last_one_held(
    first: Shape, second: Shape, overlap: int, sizes: list[int], max_bytes: int
) -> None:
    """A segment of a new leader may begin below: its batches that are known are left out."""
    one = log_of(first)
    kept = one[max(0, len(one) - overlap) :] if overlap else []
    start = kept[0][0] if kept else one[-1][1] + 1
    two = kept + log_of(second, one[-1][1] + 1)
    collected = WholeBatches(FIRST_OFFSET, max_bytes)
    fed(collected, b"".join(batch for _, _, batch in one), sizes, FIRST_OFFSET)
    if not collected.full:
        fed(collected, b"".join(batch for _, _, batch in two), sizes, max(start, one[-1][1] + 1))
    whole = one + [batch for batch in two if batch[0] > one[-1][1]]
    assert bytes(collected.records) == expected(whole, FIRST_OFFSET, max_bytes)


@given(shape=shapes, data=st.data())
def test_a_flipped_bit_is_named_with_its_batch_or_was_not_read(shape: Shape, data: st.DataObject) -> None:
    batches = log_of(shape)
    content = bytearray(b"".join(batch for _, _, batch in batches))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    collected = WholeBatches(FIRST_OFFSET, len(content))
    named = None
    try:
        fed(collected, bytes(content), [64], FIRST_OFFSET)
    except FormatError as error:
        named = error.position
    # Base offset, epoch and the lengths of what follows are outside of a batch's checksum.
    unread = collected.records != b"".join(batch for _, _, batch in batches)
    assert unread if named is None else named <= position


def test_a_batch_larger_than_what_is_left_of_its_segment_is_never_waited_for() -> None:
    batch = record_batch(0, count=1, value_bytes=50)
    collected = WholeBatches(0, 10)
    collected.begin(0, len(batch) - 1, 0)
    with pytest.raises(FormatError, match=rf"batch of {len(batch)} bytes, {len(batch) - 1} are left"):
        collected.feed(batch[:-1])


def test_a_cut_off_header_is_left_over() -> None:
    batch = record_batch(0, count=1)
    collected = WholeBatches(0, 10_000)
    collected.begin(0, len(batch) + 7, 0)
    collected.feed(batch + bytes(7))
    with pytest.raises(FormatError, match="7 bytes are left over"):
        collected.end()


# The last stable offset from files against a plain replay of what a broker would know at the high watermark.


@dataclass(frozen=True)
class Step:
    """One batch: plain, in a transaction, or a marker. `roll` begins a new segment before it; `stop` is a clean stop
    behind it, which leaves a snapshot in the middle of the segment.
    """

    kind: str
    producer_id: int
    count: int
    roll: bool
    stop: bool


_steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["plain", "data", "data", "commit", "abort"]),
        st.integers(1, 3),
        st.integers(1, 4),
        st.sampled_from([False, False, True]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=25,
)


def _batch(step: Step, offset: int) -> bytes:
    if step.kind == "plain":
        return record_batch(offset, count=step.count)
    if step.kind == "data":
        return data_batch(offset, step.producer_id, count=step.count)
    return marker(offset, step.producer_id, ControlType.COMMIT if step.kind == "commit" else ControlType.ABORT)


def _snapshot(open_since: dict[int, int]) -> list[ProducerEntry]:
    return [ProducerEntry(producer, 1, 0, first, 0, 0, 9, first) for producer, first in open_since.items()]


@settings(max_examples=60)
@given(_steps, st.data())
def test_equal_to_a_plain_replay(steps: list[Step], data: st.DataObject) -> None:
    offset, open_since = 0, dict[int, int]()
    segments: list[tuple[int, list[bytes]]] = [(0, [])]
    snapshots: dict[int, list[ProducerEntry]] = {}
    history: list[tuple[int, dict[int, int]]] = [(0, {})]
    for step in steps:
        if step.roll and segments[-1][1]:
            segments.append((offset, []))
            snapshots[offset] = _snapshot(open_since)
        segments[-1][1].append(_batch(step, offset))
        if step.kind == "data":
            open_since.setdefault(step.producer_id, offset)
        elif step.kind != "plain":
            open_since.pop(step.producer_id, None)
        offset += step.count if step.kind in ("plain", "data") else 1
        history.append((offset, dict(open_since)))
        if step.stop:
            snapshots[offset] = _snapshot(open_since)
    high_watermark, still_open = data.draw(st.sampled_from(history))
    kept = [taken_at for taken_at in snapshots if data.draw(st.booleans())]
    with tempfile.TemporaryDirectory() as directory:
        partition = BrokerLogDir(Path(directory, "data")).partition()
        for base, batches in segments:
            partition.segment(base, batches)
        for taken_at in kept:
            partition.snapshot(taken_at, snapshots[taken_at])
        with BrokerDirectory.open(str(partition.path)) as opened:
            listing = list_partition(opened, _fail)
            found = [
                find_last_stable_offset(opened, listing, high_watermark=high_watermark, deep=deep, on_error=_fail)
                for deep in (False, True)
            ]
    wanted = min([high_watermark, *(first for first in still_open.values() if first < high_watermark)])
    assert found == [wanted, wanted]


def _fail(error: Exception) -> None:
    raise error
