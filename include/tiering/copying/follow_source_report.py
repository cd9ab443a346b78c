"""The decision that an archive goes on with its source's history."""

from typing import Final

from include.tiering.copying.follow_source import FollowSource
from include.tiering.model.histories import OffsetRange
from include.tiering.presentation import Document, Presentation, count, labels

_COPIED: Final = "the next copy goes on there"


def present_follow(follow: FollowSource, refusal: str | None) -> Presentation:
    """Not `ok`: refused, so nothing changed."""
    if refusal is not None:
        summary = f"nothing is decided: {refusal}. {_meaning(follow)}"
    else:
        goes_on = "./tiering adopt takes in what the store has from there on" if _is_stored(follow) else _COPIED
        summary = f"recorded: {_meaning(follow)}; {goes_on}"
    return Presentation(lambda: _document(follow, refusal), lambda: (), summary, ok=refusal is None)


def question(follow: FollowSource) -> str:
    """What a person is to agree to."""
    return f"{_meaning(follow)}. Follow the source?"


def _meaning(follow: FollowSource) -> str:
    where = follow.topic_id_partition
    text = f"{where}: {follow.seen}; from offset {follow.from_offset} on the archive follows the source"
    if follow.kept is not None:
        text += f"; offsets {follow.kept} stay as they are, for those who ask by leader epoch"
    if follow.missing is not None:
        text += f"; {count(follow.missing.size, 'offset')} of the source's history, {follow.missing}, will be missing"
        text += " from the archive for ever"
    return text


def _is_stored(follow: FollowSource) -> bool:
    return follow.decided is not None and follow.decided.begins_in_store(follow.from_offset)


def _document(follow: FollowSource, refusal: str | None) -> Document:
    decided = follow.decided
    return {
        **labels(follow.topic_id_partition),
        "from_offset": follow.from_offset,
        "diverges": {
            **_offsets(follow.seen.offsets),
            "archive_epochs": list(follow.seen.archive_epochs),
            "source_epochs": list(follow.seen.source_epochs),
            "seen_by": str(follow.seen.seen_by),
        },
        "kept": _offsets(follow.kept),
        "missing": _offsets(follow.missing),
        "refusal": refusal,
        "decided": None
        if decided is None or decided.followed is None
        else {
            "history": decided.number,
            "reason": decided.followed.reason,
            "author": decided.followed.author,
            "decided_at_ms": decided.followed.decided_at_ms,
        },
    }


def _offsets(offsets: OffsetRange | None) -> Document:
    return {} if offsets is None else {"first_offset": offsets.first, "last_offset": offsets.last}
