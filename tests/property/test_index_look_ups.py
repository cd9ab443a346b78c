"""Indexes that are rebuilt of what a leader sends lead every look-up to the record to which the broker's own lead it.

The logs, and the indexes beside them, were written by real brokers; here they are cut where the broker cut them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.formats.record_batch import BatchHeader
from include.tiering.kafka.fetch_api.contract import GrowingRange, RollRules
from include.tiering.kafka.fetch_api.spool import Spool
from tests.doubles.broker_data import appended_partitions
from tests.doubles.index_look_ups import Indexes, SegmentLookUps
from tests.doubles.leader_logs import FetchWorld


@dataclass(frozen=True)
class Rolled:
    """A rolled segment: what was rebuilt when it was read from a leader, and the broker's own."""

    log: Path
    ours: Indexes
    theirs: Indexes

    @cached_property
    def look_ups(self) -> SegmentLookUps:
        return SegmentLookUps(int(self.log.stem), self.log.read_bytes())


def rolled_in(directory: Path, spool: Path) -> Iterator[Rolled]:
    logs = sorted(directory.glob("*.log"))
    begins = {int(log.stem) for log in logs}

    def is_closed_by(known: GrowingRange, header: BatchHeader, _rules: RollRules) -> bool:
        return known.base_offset < header.base_offset and header.base_offset in begins

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrowingRange, "is_closed_by", is_closed_by)
        world = FetchWorld(Spool(spool, 1 << 26, SystemClock()), b"", segment_bytes=1 << 30)
        world.append(b"".join(log.read_bytes() for log in logs))
        world.model.earliest = world.model.earliest_local = min(begins)
        world.model.leader_epoch = 1 << 20
        report = world.scan()
    assert report.errors == ()
    (replica,) = report.replicas
    for log, _ in pairwise(logs):
        with world.source.open_segment(replica.replica_id, int(log.stem)) as opened:
            data = opened.check().data
        theirs = (log.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex"))
        yield Rolled(log, Indexes(data.offset_index, data.time_index), Indexes(*theirs))


@pytest.fixture(scope="module")
def every_rolled(tmp_path_factory: pytest.TempPathFactory) -> list[Rolled]:
    spool = tmp_path_factory.mktemp("spool")
    return [
        segment
        for directory in appended_partitions()
        if len(list(directory.glob("*.log"))) > 1
        for segment in rolled_in(directory, spool)
    ]


def test_every_look_up_leads_to_the_same_record(every_rolled: list[Rolled]) -> None:
    assert len(every_rolled) == 150
    for segment in every_rolled:
        assert list(segment.look_ups.differences(segment.ours, segment.theirs)) == [], segment.log
    # Some have other entries than the broker's, which began to count at 0 again there.
    assert any(segment.ours != segment.theirs for segment in every_rolled)


def test_an_entry_with_a_later_position_is_noticed(every_rolled: list[Rolled]) -> None:
    indexed = [segment for segment in every_rolled if len(segment.ours.offsets(0)) > 1]
    assert len(indexed) > 100
    for segment in indexed:
        (_, _), (_, later), *_ = segment.ours.offsets(0)
        wrong = bytearray(segment.ours.offset_index)
        struct.pack_into(">i", wrong, 4, later)
        assert is_noticed(segment, replace(segment.ours, offset_index=bytes(wrong))), segment.log


def test_a_timestamp_with_a_later_offset_is_noticed(every_rolled: list[Rolled]) -> None:
    """The records in between, which are newer than that timestamp, are not found then."""
    indexed = [segment for segment in every_rolled if len(segment.ours.times(0)) > 2]
    assert len(indexed) > 50
    for segment in indexed:
        wrong = bytearray(segment.ours.time_index)
        struct.pack_into(">i", wrong, 8, segment.ours.times(0)[-1][1])
        assert is_noticed(segment, replace(segment.ours, time_index=bytes(wrong))), segment.log


def is_noticed(segment: Rolled, ours: Indexes) -> bool:
    return next(segment.look_ups.differences(ours, segment.theirs), None) is not None
