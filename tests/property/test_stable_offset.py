"""The last stable offset from files against a plain replay of what a broker would know at the high watermark."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.formats.indexes import ProducerEntry
from include.tiering.formats.record_batch import ControlType
from include.tiering.kafka.log_dirs.dirs import list_partition
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.log_tail import find_last_stable_offset
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.record_batches import data_batch, marker, record_batch


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
