"""Damage of whole objects: gone, in each other's place, of another time, under a wrong key, too many."""

from collections.abc import Callable
from typing import Final

from include.tiering.remote_storage.contract import ObjectKind
from tests.doubles.damages.batches import batches_of
from tests.doubles.damages.damage import ANY, Damage
from tests.doubles.damages.picture import INDEXES, LOG, MANIFEST, ORDERS, Picture

_ALL: Final = (LOG, INDEXES, MANIFEST)
_OTHER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def _gone(*kinds: ObjectKind) -> Callable[[Picture], None]:
    return lambda picture: picture.segment().remove(*kinds)


def _swap(*kinds: ObjectKind) -> Callable[[Picture], None]:
    """With those of the segment before."""

    def do(picture: Picture) -> None:
        one, other = picture.segment(6), picture.segment(5)
        for kind in kinds:
            first, second = one.read(kind), other.read(kind)
            one.write(kind, second)
            other.write(kind, first)

    return do


def _of_another_partition(kind: ObjectKind) -> Callable[[Picture], None]:
    return lambda picture: picture.segment().write(kind, picture.segment(5, ORDERS).read(kind))


def _moved(kind: ObjectKind, renaming: tuple[str, str]) -> Callable[[Picture], None]:
    def do(picture: Picture) -> None:
        key = picture.segment().key(kind)
        assert renaming[0] in key
        picture.objects[key.replace(*renaming)] = picture.objects.pop(key)

    return do


def _again(*kinds: ObjectKind) -> Callable[[Picture], None]:
    """The same objects once more, of a segment id that nobody knows; the manifest says it, too."""

    def do(picture: Picture) -> None:
        segment = picture.segment()
        own_id = str(segment.metadata.remote_log_segment_id.id)
        for kind in kinds:
            content = segment.read(kind)
            if kind is MANIFEST:
                content = content.replace(own_id.encode(), _OTHER_ID.encode())
            picture.objects[segment.key(kind).replace(own_id, _OTHER_ID)] = content

    return do


def _while_it_was_active(picture: Picture) -> None:
    """Fewer batches, indexes with zeros behind."""
    segment = picture.segment()
    segment.write(LOG, b"".join(batches_of(segment.read(LOG))[:18]))
    segment.write(INDEXES, segment.read(INDEXES)[:16] + bytes(1000))


def _indexes(change: Callable[[bytes], bytes]) -> Callable[[Picture], None]:
    """The manifest says what it said."""

    def do(picture: Picture) -> None:
        segment = picture.segment()
        segment.write(INDEXES, change(segment.read(INDEXES)))

    return do


_DANGLING: Final = ("S201", "dangling-reference")

GONE: Final = (
    Damage("the log", _gone(LOG), "Q106", "Q101", "Q102", *_DANGLING),
    Damage("the indexes", _gone(INDEXES), "Q106", "Q201", "Q211", "Q231", "Q241", *_DANGLING),
    Damage("the manifest", _gone(MANIFEST), "Q106", "Q104", "Q103", *_DANGLING),
    Damage("all three", _gone(*_ALL), "Q106", "Q101", "Q104", *_DANGLING),
)

OF_ANOTHER_SEGMENT: Final = (
    Damage("logs swapped with the segment before", _swap(LOG), "Q101", "Q102", "Q251", "S203", "size-mismatch"),
    Damage("indexes swapped with the segment before", _swap(INDEXES), "Q103", "Q241"),
    Damage("manifests swapped with the segment before", _swap(MANIFEST), "Q104", "Q103", "S204"),
    Damage("all objects swapped with the segment before", _swap(*_ALL), "Q101", "Q104", "S203", "size-mismatch"),
    Damage("the log of another partition", _of_another_partition(LOG), "Q101", "Q102", "S203", "size-mismatch"),
    Damage("the indexes of another partition", _of_another_partition(INDEXES), "Q103", "Q241"),
    Damage("the manifest of another partition", _of_another_partition(MANIFEST), "Q104", "Q103", "S204"),
    Damage(
        "stale: log and indexes of the active segment", _while_it_was_active, "Q101", "Q103", "S203", "size-mismatch"
    ),
    Damage("indexes cut by a byte", _indexes(lambda content: content[:-1]), "Q103"),
    Damage("a byte behind the indexes", _indexes(lambda content: content + b"\n"), "Q103"),
)

WRONG_KEYS: Final = (
    Damage("the log: another start offset", _moved(LOG, ("524-", "525-")), "wrong-layout", "Q101", *_DANGLING),
    Damage("the log: another topic", _moved(LOG, ("payments", "Payments")), "wrong-layout", "Q101", *_DANGLING),
    Damage("the manifest: another partition", _moved(MANIFEST, ("/0/", "/1/")), "wrong-layout", "Q104", *_DANGLING),
    Damage(
        "the indexes: a name of no kind",
        _moved(INDEXES, (".indexes", ".indexes.bak")),
        "foreign-object",
        "Q201",
        *_DANGLING,
    ),
    Damage("the log: no segment's name", _moved(LOG, ("524-", "524_")), "foreign-object", "Q101", *_DANGLING),
)

TOO_MANY: Final = (
    Damage("a segment twice, nobody knows the second", _again(*_ALL), "duplicate", "S202", depth=ANY),
    Damage("a log twice, nobody knows the second", _again(LOG), "orphan", "S202", depth=ANY),
    Damage("log and indexes twice, without a manifest", _again(LOG, INDEXES), "orphan", "S202", depth=ANY),
    Damage("an object of nobody", lambda p: p.objects.update({"README.txt": b"hello"}), "foreign-object", depth=ANY),
)
