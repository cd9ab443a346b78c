"""Damage of each member of a manifest."""

from collections.abc import Callable
from typing import Any, Final

from tests.doubles.damages.damage import ANY, Damage
from tests.doubles.damages.picture import MANIFEST, Picture

_OTHER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_PARTITION: Final = ("remoteLogSegmentId", "topicIdPartition")
_FINAL: Final = "finalTransformedChunkSize"


def _member(*path: str, value: object) -> Callable[[Picture], None]:
    def change(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        assert document.get(path[-1]) != value
        document[path[-1]] = value

    return lambda picture: picture.segment().change_manifest(change)


def _described(*path: str, value: object) -> Callable[[Picture], None]:
    return _member("remoteLogSegmentMetadata", *path, value=value)


def _text(change: Callable[[bytes], bytes]) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        segment = picture.segment()
        segment.write(MANIFEST, change(segment.read(MANIFEST)))

    return do


def _without(member: str) -> Callable[[Picture], None]:
    return lambda picture: picture.segment().change_manifest(lambda document: document.pop(member))


def _position(index: str, **members: int) -> Callable[[Picture], None]:
    """Members of an index's place raised by so much."""

    def change(document: dict[str, Any]) -> None:
        place = document["segmentIndexes"][index]
        for name, more in members.items():
            place[name] += more

    return lambda picture: picture.segment().change_manifest(change)


def _of_a_longer_log(picture: Picture) -> None:
    longer = picture.segment().metadata.segment_size_bytes + 1
    lengths = {"originalFileSize": longer, _FINAL: longer}
    picture.segment().change_manifest(lambda document: document["chunkIndex"].update(lengths))


def _chunked_again(picture: Picture) -> None:
    sizes = {"originalChunkSize": 65_536, "transformedChunkSize": 65_536}
    picture.segment().change_manifest(lambda document: document["chunkIndex"].update(sizes))


_DESCRIBED: Final = ("Q104", "S204")

WHAT_IT_DESCRIBES: Final = (
    Damage("id", _described("remoteLogSegmentId", "id", value=_OTHER_ID), *_DESCRIBED),
    Damage("topicId", _described(*_PARTITION, "topicId", value=_OTHER_ID), *_DESCRIBED),
    Damage("topic", _described(*_PARTITION, "topicPartition", "topic", value="orders"), "Q104"),
    Damage("partition", _described(*_PARTITION, "topicPartition", "partition", value=7), *_DESCRIBED),
    Damage("startOffset", _described("startOffset", value=523), *_DESCRIBED),
    Damage("endOffset", _described("endOffset", value=850), *_DESCRIBED),
    Damage("maxTimestampMs", _described("maxTimestampMs", value=1), "Q104"),
    Damage("brokerId", _described("brokerId", value=7), "Q104"),
    Damage("segmentLeaderEpochs: one gone", _described("segmentLeaderEpochs", value={"1": 524, "2": 626}), *_DESCRIBED),
    Damage("segmentLeaderEpochs: a start", _described("segmentLeaderEpochs", "3", value=728), *_DESCRIBED),
    Damage("txnIdxEmpty", _described("txnIdxEmpty", value=True), "Q104"),
    Damage("no remoteLogSegmentMetadata", _without("remoteLogSegmentMetadata"), *_DESCRIBED),
)

_UNREADABLE: Final = ("Q104", "Q103", "S205")

HOW_IT_IS_READ: Final = (
    Damage("version", _member("version", value="2"), *_UNREADABLE),
    Damage("chunkIndex.type", _member("chunkIndex", "type", value="variable"), *_UNREADABLE),
    Damage("chunkIndex.originalChunkSize", _member("chunkIndex", "originalChunkSize", value=4096), *_UNREADABLE),
    Damage("chunkIndex.originalFileSize", _member("chunkIndex", "originalFileSize", value=24_101), *_UNREADABLE),
    Damage("chunkIndex.transformedChunkSize", _member("chunkIndex", "transformedChunkSize", value=4096), *_UNREADABLE),
    Damage("chunkIndex.finalTransformedChunkSize", _member("chunkIndex", _FINAL, value=1), *_UNREADABLE),
    Damage("chunkIndex of a longer log", _of_a_longer_log, *_DESCRIBED),
    Damage("segmentIndexes.offset.position", _position("offset", position=8), "Q103", "Q203"),
    Damage("segmentIndexes.offset.size", _position("offset", size=-8), "Q103"),
    Damage("segmentIndexes.timestamp", _position("timestamp", position=12), "Q103", "Q215"),
    Damage("segmentIndexes.producerSnapshot", _position("producerSnapshot", size=-46), "Q103", "Q231"),
    Damage("segmentIndexes.leaderEpoch", _position("leaderEpoch", position=-1), "Q103", "Q241"),
    Damage("segmentIndexes.transaction", _position("transaction", position=1000), "Q103", "Q224"),
    Damage("segmentIndexes.transaction null", _member("segmentIndexes", "transaction", value=None), "Q103", "Q224"),
    Damage("no segmentIndexes", _without("segmentIndexes"), *_UNREADABLE),
    Damage("compression", _member("compression", value=True), "Q103", "S205"),
    Damage("encryption", _member("encryption", value={"dataKey": "key:AAAA", "aad": "AAAA"}), *_UNREADABLE),
    Damage("a member that nobody knows", _member("comment", value="x"), *_UNREADABLE),
    Damage("cut", _text(lambda text: text[:-1]), *_UNREADABLE),
    Damage("empty", _text(lambda _: b""), "Q106", *_UNREADABLE, "size-mismatch"),
    Damage("not JSON", _text(lambda text: b"\0" * len(text)), *_UNREADABLE),
)

UNSEEN: Final = (
    Damage("manifest: eventTimestampMs", _described("eventTimestampMs", value=1), depth=ANY),
    Damage("manifest: another chunk size, all members follow", _chunked_again, depth=ANY),
)
