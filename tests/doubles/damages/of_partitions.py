"""Damage between segments: each one is right by itself, and so are metadata, manifests and keys."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from include.tiering.formats import checkpoints, indexes
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import IndexType, RemoteLogSegmentId, Uuid
from tests.doubles.damages.batches import moved
from tests.doubles.damages.damage import ANY, Damage
from tests.doubles.damages.picture import INDEXES, LOG, MANIFEST, Picture, StoredSegment
from tests.doubles.stored_log import PAYMENTS

_OTHER_ID: Final = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")


def _forgotten(*, with_objects: bool) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        if with_objects:
            picture.segment().remove(LOG, INDEXES, MANIFEST)
        del picture.rows[PAYMENTS][picture.segment().number]

    return do


def _redescribed(segment: StoredSegment, **members: Any) -> None:
    """Metadata, manifest and keys say something else; the other objects stay as they are."""
    contents = {kind: segment.read(kind) for kind in (LOG, INDEXES, MANIFEST)}
    segment.remove(*contents)
    segment.change_row(**members)
    for kind, content in contents.items():
        segment.write(kind, content)
    metadata = segment.metadata
    described: dict[str, Any] = {
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in metadata.segment_leader_epochs},
    }
    segment.change_manifest(lambda document: document["remoteLogSegmentMetadata"].update(described))


def _moved(offsets: int = 0, epochs: int = 0) -> Callable[[Picture], None]:
    """The last segment, elsewhere, with all that speaks of offsets and epochs. Batches are sound: neither is under
    their CRCs."""

    def do(picture: Picture) -> None:
        segment = picture.segment(7)
        metadata, parts = segment.metadata, segment.indexes()
        history = checkpoints.parse_leader_epochs(parts[IndexType.LEADER_EPOCH])
        start = metadata.start_offset + offsets
        (entry,) = metadata.segment_leader_epochs
        epoch = entry.epoch + epochs
        _redescribed(
            segment,
            start_offset=start,
            end_offset=metadata.end_offset + offsets,
            segment_leader_epochs=LeaderEpochs.of([(epoch, start)]),
        )
        segment.write(LOG, moved(segment.read(LOG), offsets, epochs))
        kept = [(e.epoch, e.start_offset) for e in history if e.epoch <= epoch]
        segment.write_index(IndexType.LEADER_EPOCH, checkpoints.serialize_leader_epochs(LeaderEpochs.of(kept)))
        producers = [
            replace(one, last_offset=one.last_offset + offsets) if one.last_offset >= metadata.start_offset else one
            for one in indexes.parse_producer_snapshot(parts[IndexType.PRODUCER_SNAPSHOT])
        ]
        segment.write_index(IndexType.PRODUCER_SNAPSHOT, indexes.serialize_producer_snapshot(producers))

    return do


def _twice(picture: Picture) -> None:
    """Copied once more and FINISHED, as after a claim that both believed."""
    segment = picture.segment(7)
    contents = {kind: segment.read(kind) for kind in (LOG, INDEXES, MANIFEST)}
    own_id = str(segment.metadata.remote_log_segment_id.id)
    picture.rows[PAYMENTS].append(segment.row)
    again = picture.segment(8)
    again.change_row(remote_log_segment_id=RemoteLogSegmentId(segment.partition, _OTHER_ID))
    for kind, content in contents.items():
        again.write(kind, content.replace(own_id.encode(), str(_OTHER_ID).encode()) if kind is MANIFEST else content)


def _lowered_start(picture: Picture) -> None:
    _redescribed(picture.segment(7), start_offset=840, segment_leader_epochs=LeaderEpochs.of([(3, 840)]))


def _replaced_since(picture: Picture) -> None:
    """An unclean election replaced the end: its epoch is remembered."""
    last = picture.segment(7).metadata
    epochs = [entry for row in picture.rows[PAYMENTS] for entry in row.metadata.segment_leader_epochs]
    first = {epoch: min(start for one, start in epochs if one == epoch) for epoch, _ in epochs}
    entries = [*sorted(first.items()), (max(first) + 2, last.start_offset)]
    picture.histories[PAYMENTS] = LeaderEpochs.of(entries)


def _early_epochs(picture: Picture) -> None:
    _redescribed(picture.segment(), segment_leader_epochs=LeaderEpochs.of([(1, 520), (2, 626), (3, 727)]))


SUCCESSION: Final = (
    Damage("a segment gone, with its objects", _forgotten(with_objects=True), "Q301", "Q401"),
    Damage("a segment forgotten, its objects are there", _forgotten(with_objects=False), "Q301", "Q401", "adoptable"),
    Damage("a segment FINISHED twice", _twice, "Q402", "Q302", "duplicate"),
    Damage("a segment moved behind a gap", _moved(offsets=5), "Q301", "Q401", recorded=True),
    Damage("a segment moved back over the one before", _moved(offsets=-5), "Q302", "Q403", recorded=True),
    Damage("a segment of an older leader epoch", _moved(epochs=-1), "Q303", "Q304", "Q404", recorded=True),
    Damage("a start lowered into the segment before", _lowered_start, "Q302", "Q403", "Q251"),
    Damage("leader epochs that begin before their segment", _early_epochs, "Q242", "Q241"),
    Damage("an end raised", lambda p: _redescribed(p.segment(7), end_offset=890), "Q252"),
    Damage("the leader's log ends within a segment", lambda p: p.log_ends.update({PAYMENTS: 870}), "Q405", depth=ANY),
    Damage("the source has another history since", _replaced_since, "Q407", depth=ANY),
    Damage("the log start is above a segment", lambda p: p.log_starts.update({PAYMENTS: 130}), "Q406", depth=ANY),
)
