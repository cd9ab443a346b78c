"""Offsets that an archive goes on without, by decision."""

from include.tiering.copying.plan_report import loss_document, needs_a_person
from include.tiering.copying.skip_offsets import Skip
from include.tiering.model.histories import OffsetRange
from include.tiering.presentation import Document, Presentation, Table, count, labels
from include.tiering.units import format_utc


def present_skip(skip: Skip, refusal: str | None) -> Presentation:
    """Not `ok`: refused, so nothing changed; or the partition waits for a person, and not for this."""
    waits_for_more = not skip.ranges and skip.waits is not None and needs_a_person([skip.waits])
    return Presentation(
        lambda: _document(skip, refusal),
        lambda: _tables(skip),
        _summary(skip, refusal),
        ok=refusal is None and not waits_for_more,
    )


def question(skip: Skip) -> str:
    """What a person is to agree to."""
    return f"{_missing(skip)}. Go on without them?"


def _missing(skip: Skip) -> str:
    if not skip.ranges:
        return f"{skip.topic_id_partition}: there is nothing to skip"
    ranges = ", ".join(map(str, skip.ranges))
    text = f"{skip.topic_id_partition}: {count(skip.offsets, 'offset')}, {ranges}, will be missing from the archive"
    if skip.lost:
        kept = f"{count(len(skip.lost), 'segment')} that failed the quality gate, kept and not served"
        return f"{text}: {kept} ({'; '.join(loss.why for loss in skip.lost)})"
    text += " for ever"
    if skip.is_compacted:
        return f"{text}: compacted away before they were copied"
    return f"{text}; {_elsewhere(skip)}" if skip.elsewhere else text


def _elsewhere(skip: Skip) -> str:
    brokers = " and ".join(f"broker {broker}" for broker in skip.elsewhere)
    return f"some are still on {brokers}: a copy reads whichever leads the partition"


def _summary(skip: Skip, refusal: str | None) -> str:
    if not skip.ranges:
        waits = skip.waits
        why = "" if waits is None else f"; from offset {waits.next_offset} it waits: {waits.reason}: {waits.detail}"
        return f"{skip.topic_id_partition}: there is nothing to skip{why}"
    if refusal is not None:
        return f"nothing is skipped: {refusal}. {_missing(skip)}"
    return f"recorded: {_missing(skip)}; {_goes_on(skip)}"


def _goes_on(skip: Skip) -> str:
    if skip.hole is None:
        return "the next copy goes on behind them"
    if skip.is_within:
        return "./tiering verify gives what was copied behind them another verdict"
    return f"the next copy begins at {skip.hole.last + 1}"


def _document(skip: Skip, refusal: str | None) -> Document:
    waits = skip.waits
    return {
        **labels(skip.topic_id_partition),
        **_offsets(skip.ranges[0] if skip.ranges else None),
        "lost": [loss_document(loss) for loss in skip.lost],
        "elsewhere": list(skip.elsewhere),
        "waits": None if waits is None else f"{waits.reason}: {waits.detail}",
        "refusal": refusal,
        "recorded": [
            {
                **_offsets(one.offsets),
                "reason": one.reason,
                "author": one.author,
                "recorded_at_ms": one.recorded_at_ms,
            }
            for one in skip.decisions
        ],
    }


def _offsets(offsets: OffsetRange | None) -> Document:
    if offsets is None:
        return {"first_offset": None, "last_offset": None, "offsets": 0}
    return {"first_offset": offsets.first, "last_offset": offsets.last, "offsets": offsets.size}


def _tables(skip: Skip) -> tuple[Table, ...]:
    """No table if nothing was ever decided."""
    if not skip.decisions:
        return ()
    rows = tuple(
        (str(one.offsets), str(one.offsets.size), format_utc(one.recorded_at_ms), one.author, one.reason)
        for one in skip.decisions
    )
    return (Table(f"{skip.topic_id_partition}, skipped", ("offsets", "how many>", "when", "by", "reason"), rows),)
