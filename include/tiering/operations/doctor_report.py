"""Why a topic is not tiered, one line per partition."""

from collections.abc import Sequence

from include.tiering.operations.diagnose import Cause, Diagnosis
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count, labels


def present_doctor(topic: str, diagnoses: Sequence[Diagnosis]) -> Presentation:
    """Ok if everything tiers that was not deleted."""
    findings = [one for one in diagnoses if one.cause.is_finding]
    is_there = any(one.cause is not Cause.DELETED for one in diagnoses)
    fine = f"{topic}: everything tiers" if is_there else f"{topic}: was deleted"
    summary = f"{topic}: {count(len(findings), 'finding')}" if findings else fine
    return Presentation(
        lambda: {"topic": topic, "tiers": not findings, "partitions": list(map(_document, diagnoses))},
        lambda: (_table(topic, diagnoses),),
        summary,
        ok=not findings,
    )


def _document(one: Diagnosis) -> Document:
    """`partition` is null where the line concerns the topic as a whole."""
    named = {"topic": one.topic, "topic_id": None, "partition": None}
    return {
        **(named if one.partition is None else labels(one.partition)),
        "tiers": one.cause.tiers,
        "cause": str(one.cause),
        "finding": one.finding,
        "advice": one.advice,
    }


def _table(topic: str, diagnoses: Sequence[Diagnosis]) -> Table:
    names = TopicNames(one.partition for one in diagnoses if one.partition is not None)
    rows = tuple(_row(one, names) for one in diagnoses)
    return Table(topic, ("partition", "tiers", "why", "what to do"), rows)


def _row(one: Diagnosis, names: TopicNames) -> tuple[str, ...]:
    where = "all"
    if one.partition is not None:
        where = names.partition(one.partition).removeprefix(f"{one.topic}-")
    tiers = "yes" if one.cause.tiers else "no" if one.cause.is_finding else "deleted"
    return (where, tiers, one.finding, one.advice)
