"""A log start that was raised by decision."""

from include.tiering.expiration.truncate import Truncation
from include.tiering.presentation import Document, Presentation, Table, count, labels
from include.tiering.units import format_bytes


def present_truncation(truncation: Truncation, refusal: str | None) -> Presentation:
    """Not `ok`: refused, so nothing changed."""
    return Presentation(
        lambda: _document(truncation, refusal),
        lambda: (_table(truncation),),
        _summary(truncation, refusal),
        ok=refusal is None,
    )


def question(truncation: Truncation) -> str:
    return (
        f"Raise the log start of {truncation.topic_id_partition} from {truncation.log_start_before} to"
        f" {truncation.log_start_offset} for good? {_below(truncation)} the next expire"
    )


def _summary(truncation: Truncation, refusal: str | None) -> str:
    partition = truncation.topic_id_partition
    if refusal is not None:
        return f"the log start of {partition} stays at {truncation.log_start_before}: {refusal}"
    if truncation.log_start_offset == truncation.log_start_before:
        return f"the log start of {partition} is {truncation.log_start_before} already"
    return f"the log start of {partition} is {truncation.log_start_offset} now; {_below(truncation)} the next expire"


def _below(truncation: Truncation) -> str:
    verb = "goes" if truncation.segments == 1 else "go"
    return f"{count(truncation.segments, 'segment')} ({format_bytes(truncation.size_bytes)}) {verb} with"


def _document(truncation: Truncation, refusal: str | None) -> Document:
    return {
        **labels(truncation.topic_id_partition),
        "from": truncation.log_start_before,
        "to": truncation.log_start_offset if refusal is None else truncation.log_start_before,
        "segments": truncation.segments,
        "bytes": truncation.size_bytes,
        "refusal": refusal,
    }


def _table(truncation: Truncation) -> Table:
    row = (
        str(truncation.topic_id_partition),
        str(truncation.log_start_before),
        str(truncation.log_start_offset),
        str(truncation.segments),
        format_bytes(truncation.size_bytes),
    )
    return Table("log start", ("partition", "before>", "asked for>", "segments below>", "bytes>"), (row,))
