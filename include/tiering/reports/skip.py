"""Offsets that an archive goes on without, by decision."""

from include.tiering.reports.plan import needs_a_person
from include.tiering.reports.presentation import Document, Presentation, Table, count, labels
from include.tiering.tasks.skip_offsets import Skip


def present_skip(skip: Skip, reason: str, refusal: str | None) -> Presentation:
    """Not `ok`: refused, so nothing changed; or the partition waits for a person, and not for this."""
    waits_for_more = skip.hole is None and skip.waits is not None and needs_a_person([skip.waits])
    return Presentation(
        lambda: _document(skip, reason, refusal),
        lambda: _tables(skip, reason),
        _summary(skip, refusal),
        ok=refusal is None and not waits_for_more,
    )


def question(skip: Skip) -> str:
    """What a person is to agree to."""
    return f"{_missing(skip)}. Go on without them?"


def _missing(skip: Skip) -> str:
    if skip.hole is None:
        return f"{skip.topic_id_partition}: there is nothing to skip"
    text = (
        f"{skip.topic_id_partition}: {count(skip.hole.size, 'offset')}, {skip.hole}, will be missing from the archive"
        f" for ever"
    )
    return f"{text}; {_elsewhere(skip)}" if skip.elsewhere else text


def _elsewhere(skip: Skip) -> str:
    brokers = " and ".join(f"broker {broker}" for broker in skip.elsewhere)
    return f"some are still on {brokers}: whichever leads the partition is read"


def _summary(skip: Skip, refusal: str | None) -> str:
    if skip.hole is None:
        waits = skip.waits
        why = "" if waits is None else f"; from offset {waits.next_offset} it waits: {waits.reason}: {waits.detail}"
        return f"{skip.topic_id_partition}: there is nothing to skip{why}"
    if refusal is not None:
        return f"nothing is skipped: {refusal}. {_missing(skip)}"
    return f"recorded: {_missing(skip)}; the next copy begins at {skip.hole.last + 1}"


def _document(skip: Skip, reason: str, refusal: str | None) -> Document:
    decision, waits = skip.decision, skip.waits
    return {
        **labels(skip.topic_id_partition),
        "first_offset": None if skip.hole is None else skip.hole.first,
        "last_offset": None if skip.hole is None else skip.hole.last,
        "offsets": 0 if skip.hole is None else skip.hole.size,
        "elsewhere": list(skip.elsewhere),
        "reason": reason,
        "author": None if decision is None else decision.author,
        "recorded_at_ms": None if decision is None else decision.recorded_at_ms,
        "waits": None if waits is None or decision is not None else f"{waits.reason}: {waits.detail}",
        "refusal": refusal,
    }


def _tables(skip: Skip, reason: str) -> tuple[Table, ...]:
    if skip.hole is None:
        return ()
    row = (str(skip.topic_id_partition), str(skip.hole), str(skip.hole.size), reason)
    return (Table("hole", ("partition", "offsets", "how many>", "reason"), (row,)),)
