"""What must hold when a copy has come to rest: nothing half done, nothing left over, every byte the source's."""

from include.tiering.app import App
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.store_ownership import MARKER_KEY


def require_whole(app: App) -> None:
    """Every eligible segment is FINISHED exactly once, equals its source, and nothing else is stored."""
    expected_keys = {MARKER_KEY}
    for replica in app.log_dirs.scan_all(topics=app.settings.topics.include).replicas:
        if not replica.chosen:
            continue
        rows = app.adapters.stores.metadata.list_segments(replica.topic_id_partition)
        assert all(row.metadata.is_finished for row in rows), [row.metadata.state.name for row in rows]
        eligible = [segment for segment in replica.segments if segment.eligible]
        assert [(row.metadata.start_offset, row.metadata.end_offset) for row in rows] == [
            (segment.base_offset, segment.end_offset) for segment in eligible
        ]
        for row in rows:
            with app.adapters.source.open_segment(replica.replica_id, row.metadata.start_offset) as opened:
                log = opened.check().data.log
                buffer = bytearray(log.size_bytes)
                assert log.read_into(0, memoryview(buffer)) == len(buffer)
            assert fetched(app, row.metadata) == bytes(buffer), f"{row.metadata.start_offset} has other bytes"
            expected_keys |= {stored.key for stored in app.adapters.storage.stat_log_segment(row.metadata)}
    assert {key for key, _ in app.adapters.storage.list_objects()} == expected_keys


def fetched(app: App, metadata: RemoteLogSegmentMetadata) -> bytes:
    return b"".join(app.adapters.storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()))
