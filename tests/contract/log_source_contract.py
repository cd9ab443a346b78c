"""What every `LogSource` must do.

A subclass gives the fixture `behind`: a source, and back doors to what lies behind it.
"""

from typing import Protocol

import google_crc32c
import pytest

from include.tiering.errors import CorruptFileError, SourceChangedError, SourceVanishedError
from include.tiering.kafka.log_dirs.contract import LogSource, ReplicaId


class SourceWithBackdoor(Protocol):
    """One partition of topic `orders`; segments of ten offsets each begin at 0, 10 and 20, all of them eligible."""

    source: LogSource
    replica_id: ReplicaId

    def damage(self, base_offset: int) -> None:
        """Break a record of this segment."""

    def replace_files(self) -> None:
        """The same names, other bytes, as after a truncation and new appends."""

    def remove_partition(self) -> None:
        """The replica goes away."""


class LogSourceContract:
    def test_scan_lists_the_replica_with_its_segments(self, behind: SourceWithBackdoor) -> None:
        report = behind.source.scan()
        assert report.errors == ()
        assert report.cluster_id is not None
        (replica,) = report.replicas
        assert replica.replica_id == behind.replica_id
        eligible = [(s.base_offset, s.end_offset) for s in replica.segments if s.eligible]
        assert eligible == [(0, 9), (10, 19), (20, 29)]
        assert replica.chosen

    def test_one_replica_is_the_same_as_in_the_scan(self, behind: SourceWithBackdoor) -> None:
        (scanned,) = behind.source.scan().replicas
        assert behind.source.replica(behind.replica_id) == scanned

    def test_the_leader_has_the_epochs_of_the_segments(self, behind: SourceWithBackdoor) -> None:
        (replica,) = behind.source.scan().replicas
        found = behind.source.leader_epochs(replica)
        for segment in (segment for segment in replica.segments if segment.eligible):
            for offset in (segment.base_offset, segment.end_offset):
                assert found.epoch_for(offset) == segment.leader_epochs.epoch_for(offset) is not None

    def test_without_transactions_none_is_unfinished(self, behind: SourceWithBackdoor) -> None:
        assert list(behind.source.unfinished_transactions(behind.replica_id)) == []
        behind.remove_partition()
        with pytest.raises(SourceVanishedError):
            behind.source.unfinished_transactions(behind.replica_id)

    def test_bounds_are_in_order(self, behind: SourceWithBackdoor) -> None:
        replica = behind.source.replica(behind.replica_id)
        assert replica.log_start_offset <= replica.last_stable_offset <= replica.high_watermark
        assert replica.high_watermark <= replica.log_end_offset
        assert replica.recovery_point <= replica.log_end_offset

    @pytest.mark.parametrize("base_offset", [0, 10, 20])
    def test_the_check_pass_agrees_with_the_scan(self, behind: SourceWithBackdoor, base_offset: int) -> None:
        scanned = behind.source.replica(behind.replica_id).segment_at(base_offset)
        with behind.source.open_segment(behind.replica_id, base_offset) as opened:
            assert opened.segment == scanned
            checked = opened.check()
            log = bytearray(checked.data.log.size_bytes)
            assert checked.data.log.read_into(0, memoryview(log)) == len(log)
            opened.recheck()
        assert scanned is not None
        assert len(log) == scanned.size_bytes
        assert google_crc32c.value(bytes(log)) == checked.data.log_crc32c
        assert (checked.first_offset, checked.last_offset) == (base_offset, base_offset + 9)
        assert checked.max_timestamp_ms == scanned.max_timestamp_ms

    def test_the_log_can_be_read_in_pieces_and_again(self, behind: SourceWithBackdoor) -> None:
        with behind.source.open_segment(behind.replica_id, 10) as opened:
            log = opened.check().data.log
            whole, piece = bytearray(log.size_bytes), bytearray(7)
            log.read_into(0, memoryview(whole))
            assert log.read_into(5, memoryview(piece)) == 7
            assert piece == whole[5:12]
            assert log.read_into(log.size_bytes - 3, memoryview(piece)) == 3
            assert piece[:3] == whole[-3:]

    def test_the_fingerprint_stays_while_nothing_changes(self, behind: SourceWithBackdoor) -> None:
        with behind.source.open_segment(behind.replica_id, 10) as first:
            before = first.fingerprint
        with behind.source.open_segment(behind.replica_id, 10) as second:
            assert second.fingerprint == before
        behind.replace_files()
        with behind.source.open_segment(behind.replica_id, 10) as third:
            assert third.fingerprint != before

    def test_damage_is_found_by_the_check_pass(self, behind: SourceWithBackdoor) -> None:
        behind.damage(10)
        with (
            behind.source.open_segment(behind.replica_id, 10) as opened,
            pytest.raises(CorruptFileError) as raised,
        ):
            opened.check()
        assert raised.value.position is not None

    def test_replaced_files_are_noticed(self, behind: SourceWithBackdoor) -> None:
        with behind.source.open_segment(behind.replica_id, 10) as opened:
            opened.recheck()
            behind.replace_files()
            with pytest.raises(SourceChangedError):
                opened.recheck()

    def test_a_partition_that_goes_away(self, behind: SourceWithBackdoor) -> None:
        with behind.source.open_segment(behind.replica_id, 10) as opened:
            behind.remove_partition()
            with pytest.raises((SourceVanishedError, SourceChangedError)):
                opened.recheck()
        assert behind.source.scan().replicas == ()
        with pytest.raises(SourceVanishedError):
            behind.source.replica(behind.replica_id)
        with pytest.raises(SourceVanishedError), behind.source.open_segment(behind.replica_id, 10):
            pass

    def test_no_segment_begins_there(self, behind: SourceWithBackdoor) -> None:
        with pytest.raises(SourceVanishedError), behind.source.open_segment(behind.replica_id, 5):
            pass
