"""Damage of the indexes of a segment. Where a length changes, the manifest says the new one: nothing but the bytes of
the index, and the log, can show it."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import IndexType
from tests.doubles.damages.damage import ANY, DEEP, Damage
from tests.doubles.damages.picture import VICTIM, Picture

_OFFSET_BYTES, _TIME_BYTES, _ABORTED_BYTES = 8, 12, 34
_LAST_PRODUCER: Final = 1
"""Of the victim's snapshot: the one that wrote the last batch and has an open transaction."""


def _index(index_type: IndexType, change: Callable[[bytes], bytes], number: int = VICTIM) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        segment = picture.segment(number)
        segment.write_index(index_type, change(segment.indexes()[index_type]))

    return do


def _field(at: int, code: str, more: int) -> Callable[[bytes], bytes]:
    """A number raised by so much."""

    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        (value,) = struct.unpack_from(code, changed, at)
        struct.pack_into(code, changed, at, value + more)
        return bytes(changed)

    return change


def _swapped(size_bytes: int) -> Callable[[bytes], bytes]:
    """The first two entries."""
    return lambda c: c[size_bytes : 2 * size_bytes] + c[:size_bytes] + c[2 * size_bytes :]


def _of(other: int, index_type: IndexType, number: int = VICTIM) -> Callable[[Picture], None]:
    """That of another segment of the partition."""
    return lambda picture: _index(index_type, lambda _: picture.segment(other).indexes()[index_type], number)(picture)


def _producers(change: Callable[[list[ProducerEntry]], list[ProducerEntry]]) -> Callable[[Picture], None]:
    """A snapshot with a CRC of its own."""
    return _index(
        IndexType.PRODUCER_SNAPSHOT,
        lambda content: indexes.serialize_producer_snapshot(change(list(indexes.parse_producer_snapshot(content)))),
    )


def _last_producer(**members: int) -> Callable[[Picture], None]:
    return _producers(lambda e: [*e[:_LAST_PRODUCER], replace(e[_LAST_PRODUCER], **members), *e[_LAST_PRODUCER + 1 :]])


def _history(*entries: tuple[int, int]) -> Callable[[Picture], None]:
    text = checkpoints.serialize_leader_epochs(LeaderEpochs.of(entries))
    return _index(IndexType.LEADER_EPOCH, lambda _: text)


def _dropped_and_denied(number: int) -> Callable[[Picture], None]:
    """The metadata says that there are no aborted transactions, too."""

    def do(picture: Picture) -> None:
        _index(IndexType.TRANSACTION, lambda _: b"", number)(picture)
        segment = picture.segment(number)
        segment.change_manifest(lambda manifest: manifest["remoteLogSegmentMetadata"].update(txnIdxEmpty=True))
        segment.change_row(txn_index_empty=True)

    return do


_OFFSET, _TIME, _ABORTED = IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION
_SNAPSHOT, _EPOCHS = IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH

OFFSET_INDEX: Final = (
    Damage("an offset raised", _index(_OFFSET, _field(0, ">i", 1)), "Q204", depth=DEEP),
    Damage("a position within a batch", _index(_OFFSET, _field(4, ">i", 1)), "Q204", depth=DEEP),
    Damage("an offset beyond the segment", _index(_OFFSET, _field(16, ">i", 1000)), "Q203"),
    Damage("a position beyond the log", _index(_OFFSET, _field(20, ">i", 10_000)), "Q203", "Q252"),
    Damage("two entries in each other's place", _index(_OFFSET, _swapped(_OFFSET_BYTES)), "Q202"),
    Damage("cut within an entry", _index(_OFFSET, lambda c: c[:-3]), "Q201", "Q202", "Q203"),
    Damage("not trimmed, as while it was active", _index(_OFFSET, lambda c: c + bytes(4 * _OFFSET_BYTES)), "Q201"),
    Damage("more entries than batches", _index(_OFFSET, lambda c: c * 200), "Q202", "Q201", "Q203"),
    Damage("that of another segment", _of(1, _OFFSET), "Q252"),
    Damage("that of another segment, both without transactions", _of(4, _OFFSET, 2), "Q252"),
)

TIME_INDEX: Final = (
    Damage("a timestamp raised", _index(_TIME, _field(0, ">q", 1)), "Q214", depth=DEEP),
    Damage("a timestamp lowered", _index(_TIME, _field(0, ">q", -1)), "Q214", depth=DEEP),
    Damage("an offset raised", _index(_TIME, _field(8, ">i", 1)), "Q214", depth=DEEP),
    Damage("the last timestamp raised", _index(_TIME, _field(12, ">q", 1)), "Q213", "Q215"),
    Damage("the last timestamp lowered", _index(_TIME, _field(12, ">q", -1)), "Q215"),
    Damage("an offset beyond the segment", _index(_TIME, _field(20, ">i", 1000)), "Q213"),
    Damage("two entries in each other's place", _index(_TIME, _swapped(_TIME_BYTES)), "Q212", "Q215"),
    Damage("the last entry gone", _index(_TIME, lambda c: c[:-_TIME_BYTES]), "Q215"),
    Damage("empty", _index(_TIME, lambda _: b""), "Q215"),
    Damage("cut within an entry", _index(_TIME, lambda c: c[:-3]), "Q211", "Q212", "Q213"),
    Damage("not trimmed, as while it was active", _index(_TIME, lambda c: c + bytes(4 * _TIME_BYTES)), "Q211"),
    Damage("that of another segment", _of(4, _TIME), "Q215"),
)

TRANSACTION_INDEX: Final = (
    Damage("dropped", _index(_ABORTED, lambda _: b""), "Q224"),
    Damage("dropped, manifest and metadata deny it", _dropped_and_denied(1), "Q226", depth=DEEP),
    Damage("invented where there is none", _of(6, _ABORTED, 5), "Q224", "Q223", "Q104"),
    Damage("an entry twice", _index(_ABORTED, lambda c: c + c), "Q222"),
    Damage("a producer id changed", _index(_ABORTED, _field(2, ">q", 1)), "Q225", depth=DEEP),
    Damage("a first offset moved into the segment", _index(_ABORTED, _field(10, ">q", 100)), "Q223"),
    Damage("a first offset moved within the segment", _index(_ABORTED, _field(10, ">q", 1), 1), "Q225", depth=DEEP),
    Damage("a first offset behind its marker", _index(_ABORTED, _field(10, ">q", 200)), "Q223"),
    Damage("a marker's offset raised", _index(_ABORTED, _field(18, ">q", 1)), "Q225", depth=DEEP),
    Damage("a marker's offset beyond the segment", _index(_ABORTED, _field(18, ">q", 1000)), "Q223"),
    Damage("a last stable offset raised", _index(_ABORTED, _field(26, ">q", 1)), "Q225", depth=DEEP),
    Damage("an unknown version", _index(_ABORTED, _field(0, ">h", 1)), "Q221", "Q222", "Q223"),
    Damage("cut within an entry", _index(_ABORTED, lambda c: c + c[:-3]), "Q221"),
    Damage("that of another segment", _of(1, _ABORTED), "Q223"),
)

PRODUCER_SNAPSHOT: Final = (
    Damage("CRC", _index(_SNAPSHOT, _field(2, ">I", 1)), "Q231"),
    Damage("a producer changed, the CRC left", _index(_SNAPSHOT, _field(10, ">q", 1)), "Q231"),
    Damage("version", _index(_SNAPSHOT, _field(0, ">h", 1)), "Q231"),
    Damage("cut within a producer", _index(_SNAPSHOT, lambda c: c[:-3]), "Q231"),
    Damage("empty", _index(_SNAPSHOT, lambda _: b""), "Q231"),
    Damage("a last offset beyond the segment", _last_producer(last_offset=850), "Q231"),
    Damage("a last offset lowered", _last_producer(last_offset=848), "Q232", depth=DEEP),
    Damage("a last sequence lowered", _last_producer(last_sequence=81), "Q232", depth=DEEP),
    Damage("a producer epoch lowered", _last_producer(producer_epoch=3), "Q232", depth=DEEP),
    Damage("an open transaction that began later", _last_producer(current_txn_first_offset=787), "Q232", depth=DEEP),
    Damage("an open transaction forgotten", _last_producer(current_txn_first_offset=-1), "Q232", depth=DEEP),
    Damage("a producer with an open transaction gone", _producers(lambda e: e[:1] + e[2:]), "Q232", depth=DEEP),
    Damage("a producer twice", _producers(lambda e: [*e, e[0]]), "Q232", depth=DEEP),
    Damage("that of the next segment", _of(7, _SNAPSHOT), "Q231"),
    Damage("that of the segment before", _of(5, _SNAPSHOT), "Q232", depth=DEEP),
)

LEADER_EPOCHS: Final = (
    Damage("the last epoch gone", _history((0, 0), (1, 424), (2, 626)), "Q241"),
    Damage("the segment's first epoch gone", _history((0, 0), (2, 626), (3, 727)), "Q241", "Q304"),
    Damage("an epoch that begins after the segment", _history((0, 0), (1, 424), (2, 626), (3, 727), (4, 900)), "Q241"),
    Damage("a start raised", _history((0, 0), (1, 424), (2, 627), (3, 727)), "Q241"),
    Damage("a start raised into the segment before", _history((0, 0), (1, 510), (2, 626), (3, 727)), "Q304"),
    Damage("an epoch that regresses", _index(_EPOCHS, lambda c: c.replace(b"3 727", b"1 727")), "Q241"),
    Damage("a count that is not that of the lines", _index(_EPOCHS, lambda c: c.replace(b"0\n4\n", b"0\n3\n")), "Q241"),
    Damage("no text", _index(_EPOCHS, lambda c: b"\xff" * len(c)), "Q241"),
    Damage("empty", _index(_EPOCHS, lambda _: b""), "Q241"),
    Damage("that of the segment before", _of(5, _EPOCHS), "Q241"),
)

HARMLESS: Final = (
    Damage("offset index: an entry gone", _index(_OFFSET, lambda c: c[:8] + c[16:]), depth=ANY),
    Damage("offset index: empty", _index(_OFFSET, lambda _: b""), depth=ANY),
    Damage("time index: an entry but the last gone", _index(_TIME, lambda c: c[_TIME_BYTES:]), depth=ANY),
    Damage("producer snapshot: a producer without a transaction gone", _producers(lambda e: e[1:]), depth=ANY),
)
"""A broker might have written it so: readers search a little longer, or are told what they would be told later."""

UNSEEN: Final = (
    Damage("producer snapshot: the time at which a producer wrote", _last_producer(timestamp_ms=1), depth=ANY),
    Damage(
        "leader epochs: a start before the segment before", _history((0, 0), (1, 420), (2, 626), (3, 727)), depth=ANY
    ),
    Damage(
        "transaction index: a first offset moved within earlier segments",
        _index(_ABORTED, _field(10, ">q", 9)),
        depth=ANY,
    ),
    Damage(
        "transaction index: dropped, manifest and metadata deny it; the transaction began in an earlier segment",
        _dropped_and_denied(VICTIM),
        depth=ANY,
    ),
)
