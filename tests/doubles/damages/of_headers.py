"""Damage of each field of a batch's header, and of its records, in the midst of a log unless it says otherwise.

Without a new CRC a batch breaks itself. With one it takes its neighbours, its records, another object, or the
source's checksum.
"""

from collections.abc import Callable
from typing import Final

from include.tiering.model.segments import Depth
from tests.doubles.damages.batches import batches_of, value_of, with_flipped_byte, with_value
from tests.doubles.damages.damage import DEEP, SHALLOW, Damage
from tests.doubles.damages.picture import LOG, Picture

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
    _damage("attributes: a codec that is none", _COMPRESSED, flip("attributes", 1, signed=True), "Q266"),
    _damage("attributes: a control batch", _PLAIN, flip("attributes", 32, signed=True), "Q266", "Q232"),
    _damage("attributes: a marker no longer", _MARKER, flip("attributes", 32, signed=True), "Q232"),
    _damage("attributes: a marker outside of a transaction", _MARKER, flip("attributes", 16, signed=True), "Q266"),
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
        ("attributes: not of the transaction around it", _COMPRESSED, flip("attributes", 16, signed=True)),
        ("attributes: a delete horizon", _COMPRESSED, flip("attributes", 64, signed=True)),
        ("producer epoch in the midst of others", _PLAIN, add("producer epoch", 1, signed=True)),
        ("base sequence in the midst of others", _PLAIN, add("base sequence", 1, signed=True)),
        ("records: a byte of a value", _PLAIN, _records(500, signed=True)),
        ("records: a byte of a compressed value", _COMPRESSED, _records(200, signed=True)),
    )
)
