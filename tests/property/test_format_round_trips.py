"""What is written is read back, and lookups and bounds equal those of a plain search."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.formats import checkpoints, indexes, primitive_types
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.indexes import ProducerEntry, open_transactions
from include.tiering.formats.record_batch import ControlType, iter_headers
from include.tiering.model.leader_epochs import LeaderEpochs
from tests.doubles.memory_source import BytesSource
from tests.doubles.record_batches import data_batch, marker, record_batch

_INT16, _INT32, _INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
_OFFSETS = st.integers(0, 2**63 - 1)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_uvarint(value: int, before: bytes) -> None:
    encoded = primitive_types.write_uvarint(value)
    assert primitive_types.read_uvarint(before + encoded, len(before)) == (value, len(before) + len(encoded))


@given(_INT32)
def test_varint(value: int) -> None:
    encoded = primitive_types.write_varint(value)
    assert primitive_types.read_varint(encoded, 0) == (value, len(encoded))
    assert primitive_types.write_varlong(value) == encoded


@given(_INT64)
def test_varlong(value: int) -> None:
    encoded = primitive_types.write_varlong(value)
    assert primitive_types.read_varlong(encoded, 0) == (value, len(encoded))


@given(st.lists(st.builds(ProducerEntry, _INT64, _INT16, _INT32, _INT64, _INT32, _INT64, _INT32, _INT64), max_size=5))
def test_producer_snapshot(entries: list[ProducerEntry]) -> None:
    assert indexes.parse_producer_snapshot(indexes.serialize_producer_snapshot(entries)) == tuple(entries)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=6), st.lists(_OFFSETS, min_size=6, max_size=6))
def test_leader_epoch_checkpoint(epochs: set[int], offsets: list[int]) -> None:
    history = LeaderEpochs.of(zip(sorted(epochs), sorted(offsets), strict=False))
    assert checkpoints.parse_leader_epochs(checkpoints.serialize_leader_epochs(history)) == history


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        _OFFSETS,
        max_size=5,
    )
)
def test_offset_checkpoint(offsets: dict[tuple[str, int], int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    assert parse_offset_checkpoint(text.encode()) == offsets


@given(
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 2**31 - 1)), max_size=8, unique_by=lambda entry: entry[0]),
    st.integers(0, 5),
)
def test_offset_index_lookups(base_offset: int, entries: list[tuple[int, int]], spare: int) -> None:
    entries.sort()
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    assert indexes.trim_offset_index(data + bytes(8 * spare)) == data
    index = indexes.parse_offset_index(data + bytes(8 * spare), base_offset=base_offset)
    for target in range(510):
        plain = [(base_offset, 0)] + [(base_offset + offset, at) for offset, at in entries if offset <= target]
        assert index.lookup(base_offset + target) == plain[-1]


@given(st.integers(0, 2**62), st.sets(st.integers(1, 2**62), max_size=8), st.integers(0, 5))
def test_time_index(base_offset: int, timestamps: set[int], spare: int) -> None:
    ascending = sorted(timestamps)
    data = b"".join(struct.pack(">qi", timestamp, number) for number, timestamp in enumerate(ascending))
    assert indexes.trim_time_index(data + bytes(12 * spare)) == data
    index = indexes.check_time_index(data, base_offset=base_offset, end_offset=base_offset + 8)
    assert np.array_equal(index.timestamps_ms, ascending)
    assert index.largest_timestamp_ms == max(timestamps, default=-1)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "abort", "commit", "plain"]), st.integers(1, 3), st.integers(1, 3)), max_size=14
)


@given(_STEPS, st.integers(0, 40))
def test_last_stable_offset(steps: list[tuple[str, int, int]], high_watermark: int) -> None:
    """Against its definition: below it, no batch of a transaction without a marker below the high watermark."""
    log, offset, belongs_to, ended_at = b"", 0, [], {}
    current: dict[int, int] = {}
    for number, (kind, producer_id, count) in enumerate(steps):
        if kind == "data":
            current.setdefault(producer_id, number)
            belongs_to.append((offset, current[producer_id]))
            log += data_batch(offset, producer_id, count=count)
        elif kind == "plain":
            log += record_batch(offset, count=count)
        else:
            count = 1
            control = ControlType.ABORT if kind == "abort" else ControlType.COMMIT
            log += marker(offset, producer_id, control)
            ended_at[current.pop(producer_id, None)] = offset
        offset += count
    undecided = [first for first, txn in belongs_to if ended_at.get(txn, high_watermark) >= high_watermark]
    found = open_transactions((), iter_headers(BytesSource(log)))
    assert found.last_stable_offset(high_watermark) == min([high_watermark, *undecided])
    assert [txn.first_offset for txn in found.open] == sorted({first for first, _ in _firsts(belongs_to, current)})
    assert len(found.aborted) == sum(txn.aborted for txn in found.completed)


def _firsts(belongs_to: list[tuple[int, int]], current: dict[int, int]) -> list[tuple[int, int]]:
    firsts: dict[int, int] = {}
    for first, txn in belongs_to:
        if txn in current.values():
            firsts.setdefault(txn, first)
    return [(first, txn) for txn, first in firsts.items()]
