"""What must hold when a copy has come to rest: nothing half done, nothing left over, every byte the source's."""

from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.quota.contract import UnlimitedBytes
from include.tiering.remote_storage.marker import MARKER_KEY
from include.tiering.wiring import Tiering


def require_whole(tiering: Tiering) -> None:
    """Every eligible segment is FINISHED exactly once, equals its source, and nothing else is stored."""
    expected_keys = {MARKER_KEY}
    for replica in tiering.scan(topics=tiering.settings.topics.include).replicas:
        if not replica.chosen:
            continue
        rows = tiering.metadata.list_segments(replica.topic_id_partition)
        assert all(row.metadata.is_finished for row in rows), [row.metadata.state.name for row in rows]
        eligible = [segment for segment in replica.segments if segment.eligible]
        assert [(row.metadata.start_offset, row.metadata.end_offset) for row in rows] == [
            (segment.base_offset, segment.end_offset) for segment in eligible
        ]
        for row in rows:
            with tiering.source.open_segment(replica.replica_id, row.metadata.start_offset) as opened:
                log = opened.check().data.log
                buffer = bytearray(log.size_bytes)
                assert log.read_into(0, memoryview(buffer)) == len(buffer)
            assert fetched(tiering, row.metadata) == bytes(buffer), f"{row.metadata.start_offset} has other bytes"
            expected_keys |= {stored.key for stored in tiering.storage.stat_log_segment(row.metadata)}
    assert {key for key, _ in tiering.storage.list_objects()} == expected_keys


def fetched(tiering: Tiering, metadata: RemoteLogSegmentMetadata) -> bytes:
    return b"".join(tiering.storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()))
