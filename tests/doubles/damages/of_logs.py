"""Damage of a log as a whole: batches that are all right, at a wrong place."""

from collections.abc import Callable
from typing import Final

from tests.doubles.damages.batches import batches_of, moved
from tests.doubles.damages.damage import DEEP, Damage
from tests.doubles.damages.picture import LOG, MANIFEST, ORDERS, Picture


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
        "zeros for a block", _log(lambda log: log[:8192] + bytes(4096) + log[12288:]), "Q262", depth=DEEP, recorded=True
    ),
)

_LENGTH: Final = ("Q101", "S203", "size-mismatch")

LENGTH: Final = (
    Damage("cut within a batch", _log(lambda log: log[:-100]), *_LENGTH, "Q252"),
    Damage("cut between batches, as it was while it was active", _batches(lambda b: b[:-1]), *_LENGTH, "Q252"),
    Damage("cut to a header", _log(lambda log: log[:61]), *_LENGTH, "Q251", "Q252"),
    Damage("empty", _log(lambda _: b""), "Q106", *_LENGTH, "Q251", "Q252"),
    Damage("the first batch gone", _batches(lambda b: b[1:]), *_LENGTH, "Q251"),
    Damage("a zero tail, as preallocated", _log(lambda log: log + bytes(4096)), *_LENGTH),
    Damage("a batch of the next segment behind", _of_the_next_segment, *_LENGTH),
    Damage("a byte behind", _log(lambda log: log + b"\xff"), *_LENGTH),
    Damage("of another partition, moved here, as long", _of_another_partition, "Q102", "Q252"),
)
