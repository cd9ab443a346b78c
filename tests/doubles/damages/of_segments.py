"""Damages of logs and their indexes."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.indexes import ProducerEntry
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Depth, IndexType
from tests.doubles.damages.batches import batches_of, moved, value_of, with_flipped_byte, with_value
from tests.doubles.damages.damage import ANY, DEEP, SHALLOW, Damage
from tests.doubles.damages.picture import LOG, MANIFEST, ORDERS, VICTIM, Picture

# Damage of each field of a batch's header, and of its records, in the midst of a log unless it says otherwise.
# Without a new CRC a batch breaks itself. With one it takes its neighbours, its records, another object, or the
# source's checksum.

_FIRST, _LAST = 0, -1
_PLAIN, _LAST_OF_PLAIN = 15, 16
"""Batches of a producer without a codec; the second one is its last in the segment."""
_COMPRESSED, _LAST_OF_ABORTING, _MARKER, _OLDEST_MARKER = 9, 13, 14, 0
"""Of a transaction that commits with `_MARKER`. `_OLDEST_MARKER` aborts one that began in an earlier segment."""

Change = Callable[[bytes], bytes]


def in_batch(number: int, change: Change) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        segment = picture.segment()
        batches = batches_of(segment.read(LOG))
        batches[number] = change(batches[number])
        segment.write(LOG, b"".join(batches))

    return do


def set_to(field: str, value: int, *, signed: bool = False) -> Change:
    return lambda batch: with_value(batch, field, value, signed=signed)


def add(field: str, more: int, *, signed: bool = False) -> Change:
    return lambda batch: with_value(batch, field, value_of(batch, field) + more, signed=signed)


def flip(field: str, bits: int, *, signed: bool = False) -> Change:
    return lambda batch: with_value(batch, field, value_of(batch, field) ^ bits, signed=signed)


def _records(at: int, *, signed: bool = False) -> Change:
    return lambda batch: with_flipped_byte(batch, after_header=at, signed=signed)


def _damage(name: str, number: int, change: Change, *rules: str, depth: Depth = DEEP) -> Damage:
    return Damage(name, in_batch(number, change), *rules, depth=depth, recorded=True)


OUTSIDE_OF_THE_CRC: Final = (
    _damage("base offset raised", _COMPRESSED, add("base offset", 1), "Q264", "Q263", "Q204"),
    _damage("base offset lowered", _COMPRESSED, add("base offset", -1), "Q264", "Q263", "Q204"),
    _damage("base offset far away", _COMPRESSED, set_to("base offset", 2**62), "Q264", "Q263", "Q265"),
    _damage("base offset of the first batch", _FIRST, add("base offset", 1), "Q251", depth=SHALLOW),
    _damage("base offset of the last batch", _LAST, add("base offset", 1), "Q252", depth=SHALLOW),
    _damage("batch length raised", _COMPRESSED, add("batch length", 1), "Q261"),
    _damage("batch length lowered", _COMPRESSED, add("batch length", -1), "Q261"),
    _damage("batch length below a header's", _COMPRESSED, set_to("batch length", 48), "Q261"),
    _damage("batch length over the next batch, too", _COMPRESSED, add("batch length", 496), "Q262", "Q263"),
    _damage("leader epoch raised", _COMPRESSED, add("leader epoch", 1), "Q265"),
    _damage("leader epoch lowered", _COMPRESSED, add("leader epoch", -1), "Q265"),
    _damage("leader epoch none", _COMPRESSED, set_to("leader epoch", -1), "Q265"),
    _damage("leader epoch of the first batch", _FIRST, add("leader epoch", -1), "Q251", depth=SHALLOW),
    _damage("leader epoch of the last batch", _LAST, add("leader epoch", 1), "Q252", depth=SHALLOW),
    _damage("magic 1", _COMPRESSED, set_to("magic", 1), "Q261"),
    _damage("magic 3", _COMPRESSED, set_to("magic", 3), "Q261"),
    _damage("CRC", _COMPRESSED, flip("crc", 1), "Q262"),
    _damage("CRC of the first batch", _FIRST, flip("crc", 1), "Q251", depth=SHALLOW),
    _damage("CRC of the last batch", _LAST, flip("crc", 1), "Q252", depth=SHALLOW),
)

_COVERED: Final = (
    "attributes",
    "last offset delta",
    "base timestamp",
    "max timestamp",
    "producer id",
    "producer epoch",
    "base sequence",
    "record count",
)

UNDER_THE_CRC: Final = (
    *(_damage(field, _COMPRESSED, flip(field, 2), "Q262") for field in _COVERED),
    _damage("records, compressed", _COMPRESSED, _records(200), "Q262"),
    _damage("records, plain", _PLAIN, _records(500), "Q262"),
    _damage("records of the last batch", _LAST, _records(500), "Q252", depth=SHALLOW),
    _damage("control record: COMMIT made an ABORT", _MARKER, _records(8), "Q262"),
)

WITH_A_NEW_CRC: Final = (
    _damage("attributes: another codec", _COMPRESSED, flip("attributes", 7, signed=True), "Q267"),
    _damage("attributes: no codec", _COMPRESSED, flip("attributes", 4, signed=True), "Q267"),
    _damage("attributes: a codec that does not exist", _COMPRESSED, flip("attributes", 1, signed=True), "Q266"),
    _damage("attributes: data with the control flag", _PLAIN, flip("attributes", 32, signed=True), "Q266", "Q232"),
    _damage("attributes: a marker, no control flag", _MARKER, flip("attributes", 32, signed=True), "Q232"),
    _damage("attributes: a marker, no transactional flag", _MARKER, flip("attributes", 16, signed=True), "Q266"),
    _damage("attributes: an unknown flag", _COMPRESSED, flip("attributes", 128, signed=True), "Q266"),
    _damage("last offset delta raised", _COMPRESSED, add("last offset delta", 1, signed=True), "Q264", "Q204"),
    _damage("last offset delta lowered", _COMPRESSED, add("last offset delta", -1, signed=True), "Q263", "Q266"),
    _damage("last offset delta negative", _COMPRESSED, set_to("last offset delta", -5, signed=True), "Q266", "Q263"),
    _damage("base timestamp", _COMPRESSED, add("base timestamp", 1, signed=True), "Q267"),
    _damage(
        "max timestamp above all", _COMPRESSED, set_to("max timestamp", 2**41, signed=True), "Q268", "Q214", "Q267"
    ),
    _damage("max timestamp lowered", _COMPRESSED, add("max timestamp", -1, signed=True), "Q267"),
    _damage("max timestamp, the segment's largest", _MARKER, add("max timestamp", -1, signed=True), "Q268", "Q214"),
    _damage("max timestamp below -1", _COMPRESSED, set_to("max timestamp", -2, signed=True), "Q266", "Q267"),
    _damage("producer id within a transaction", _COMPRESSED, add("producer id", 1, signed=True), "Q232"),
    _damage("producer id of a producer's last batch", _LAST_OF_PLAIN, add("producer id", 1, signed=True), "Q232"),
    _damage("producer id of a marker", _OLDEST_MARKER, add("producer id", 1, signed=True), "Q225"),
    _damage("producer id below -1", _PLAIN, set_to("producer id", -2, signed=True), "Q266"),
    _damage("producer id none in a transaction", _COMPRESSED, set_to("producer id", -1, signed=True), "Q266"),
    _damage("producer epoch of a producer's last batch", _LAST_OF_PLAIN, add("producer epoch", 1, signed=True), "Q232"),
    _damage("producer epoch negative", _COMPRESSED, set_to("producer epoch", -1, signed=True), "Q266"),
    _damage("base sequence of a producer's last batch", _LAST_OF_PLAIN, add("base sequence", 1, signed=True), "Q232"),
    _damage("record count raised", _COMPRESSED, add("record count", 1, signed=True), "Q266", "Q267"),
    _damage("record count lowered", _COMPRESSED, add("record count", -1, signed=True), "Q267", "Q269"),
    _damage("record count negative", _COMPRESSED, set_to("record count", -1, signed=True), "Q266"),
    _damage("records: one of another length", _PLAIN, _records(0, signed=True), "Q267"),
    _damage("control record: ABORT made a COMMIT", _OLDEST_MARKER, _records(8, signed=True), "Q225"),
    _damage("control record: COMMIT made an ABORT", _MARKER, _records(8, signed=True), "Q226"),
)

BY_THE_CHECKSUM_ALONE: Final = tuple(
    Damage(f"{name}, with a new CRC", in_batch(number, change), "Q102")
    for name, number, change in (
        ("attributes: timestamps by the broker", _COMPRESSED, flip("attributes", 8, signed=True)),
        ("attributes: data of a transaction, no transactional flag", _COMPRESSED, flip("attributes", 16, signed=True)),
        ("attributes: a delete horizon", _COMPRESSED, flip("attributes", 64, signed=True)),
        ("producer epoch of a batch that is not the producer's last", _PLAIN, add("producer epoch", 1, signed=True)),
        ("base sequence of a batch that is not the producer's last", _PLAIN, add("base sequence", 1, signed=True)),
        ("records: a byte of a value", _PLAIN, _records(500, signed=True)),
        ("records: a byte of a compressed value", _COMPRESSED, _records(200, signed=True)),
    )
)


# Damage of the indexes of a segment. Where a length changes, the manifest says the new one: nothing but the bytes
# of the index, and the log, can show it.

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
        "transaction index with a transaction that began in an earlier segment: dropped, manifest and metadata deny it",
        _dropped_and_denied(VICTIM),
        depth=ANY,
    ),
)


# Damage of a log as a whole: batches that are all right, at a wrong place.


def _log(change: Callable[[bytes], bytes]) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        segment = picture.segment()
        segment.write(LOG, change(segment.read(LOG)))

    return do


def _batches(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Picture], None]:
    return _log(lambda log: b"".join(change(batches_of(log))))


def _swap(one: int, other: int) -> Callable[[list[bytes]], list[bytes]]:
    def change(batches: list[bytes]) -> list[bytes]:
        batches[one], batches[other] = batches[other], batches[one]
        return batches

    return change


def _gone_and_forgotten(picture: Picture) -> None:
    """The lengths that metadata and manifest tell follow."""
    segment = picture.segment()
    batches = batches_of(segment.read(LOG))
    old, new = segment.metadata.segment_size_bytes, segment.metadata.segment_size_bytes - len(batches[9])
    segment.write(LOG, b"".join([*batches[:9], *batches[10:]]))
    segment.write(MANIFEST, segment.read(MANIFEST).replace(str(old).encode(), str(new).encode()))
    segment.change_row(segment_size_bytes=new)


def _of_the_next_segment(picture: Picture) -> None:
    segment = picture.segment()
    segment.write(LOG, segment.read(LOG) + batches_of(picture.segment(7).read(LOG))[0])


def _of_another_partition(picture: Picture) -> None:
    """Its batches, moved to where the victim's are, cut to its length."""
    segment, other = picture.segment(), picture.segment(5, ORDERS)
    away = segment.metadata.start_offset - other.metadata.start_offset
    log = moved(other.read(LOG), away, 1)
    segment.write(LOG, log[: segment.metadata.segment_size_bytes])


ORDER_OF_BATCHES: Final = (
    Damage(
        "two batches in each other's place", _batches(_swap(8, 11)), "Q264", "Q263", "Q204", depth=DEEP, recorded=True
    ),
    Damage("a batch twice", _batches(lambda b: [*b[:9], b[8], *b[9:]]), "Q101", "S203", "size-mismatch", recorded=True),
    Damage("a batch gone", _batches(lambda b: [*b[:9], *b[10:]]), "Q101", "S203", "size-mismatch", recorded=True),
    Damage("a batch gone, metadata and manifest say so", _gone_and_forgotten, "Q252", recorded=True),
    Damage(
        "zeros for a batch", _batches(lambda b: [*b[:9], bytes(len(b[9])), *b[10:]]), "Q261", depth=DEEP, recorded=True
    ),
    Damage(
        "zeros over 4 KiB", _log(lambda log: log[:8192] + bytes(4096) + log[12288:]), "Q262", depth=DEEP, recorded=True
    ),
)

_LENGTH: Final = ("Q101", "S203", "size-mismatch")

LENGTH: Final = (
    Damage("cut within a batch", _log(lambda log: log[:-100]), *_LENGTH, "Q252"),
    Damage("cut between batches, as while the segment was active", _batches(lambda b: b[:-1]), *_LENGTH, "Q252"),
    Damage("cut to a header", _log(lambda log: log[:61]), *_LENGTH, "Q251", "Q252"),
    Damage("empty", _log(lambda _: b""), "Q106", *_LENGTH, "Q251", "Q252"),
    Damage("the first batch gone", _batches(lambda b: b[1:]), *_LENGTH, "Q251"),
    Damage("a zero tail, as preallocated", _log(lambda log: log + bytes(4096)), *_LENGTH),
    Damage("a batch of the next segment behind", _of_the_next_segment, *_LENGTH),
    Damage("a byte behind", _log(lambda log: log + b"\xff"), *_LENGTH),
    Damage("that of another partition, its offsets adapted, cut to this length", _of_another_partition, "Q102", "Q252"),
)
