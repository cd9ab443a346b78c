"""The question to a person: what goes, of which topic, how much of it, and why it asks."""

from include.tiering.model.retention import DeletionReason
from include.tiering.runs.approval import approval_question
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import PlannedExpiration
from tests.doubles.expirations import planned_deletion, planned_expiration
from tests.doubles.segments import FINISHED, partition_of, segment_of

HASH = "0123456789abcdef" * 4
A, B = partition_of("a"), partition_of("b_b")


def _asked(actions: list[TopicAction], expirations: list[PlannedExpiration], reasons: tuple[str, ...] = ("too much",)):
    return approval_question(DeletionLimitReport("run-1", HASH, tuple(actions), reasons), expirations)


def test_names_plan_reasons_and_topics_by_share() -> None:
    by_time = planned_expiration(A, segment_of(A, 1, 0, 9, state=FINISHED))
    by_size = [planned_deletion(segment_of(B, n, 10 * n, 10 * n + 9), DeletionReason.SIZE) for n in (2, 3)]
    expirations = [by_time, PlannedExpiration(B, 0, 40, tuple(by_size))]
    actions = [TopicAction(A.topic_id, "a", 1_024, 0, 10_240), TopicAction(B.topic_id, "b_b", 2_048, 2_048, 6_144)]
    question = _asked(actions, expirations, ("b_b: half of it", "the sums differ"))
    assert question.subject == "Delete 3 segments (2.9 KiB) of 2 topics? Plan 0123456789ab"
    lines = question.body.splitlines()
    assert lines[0] == f"Plan `{HASH}` of run `run-1` deletes 3 segments (2.9 KiB) of 2 topics from remote storage."
    assert lines[2:4] == ["* b_b: half of it", "* the sums differ"]
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[2:] == [
        "| `b_b` | 2 | 2.0 KiB | 50.0% | 2.0 KiB | 6.0 KiB | size 2 |",
        "| `a` | 1 | 1.0 KiB | 10.0% | 0 B | 10.0 KiB | time 1 |",
    ]
    assert len({row.count("|") for row in rows}) == 1


def test_a_thousand_topics_stay_readable() -> None:
    topics = [partition_of(f"topic-{number:04}") for number in range(1_000)]
    expirations = [planned_expiration(one, segment_of(one, 1, 0, 9)) for one in topics]
    actions = [TopicAction(one.topic_id, one.topic, 100, 0, 1_000) for one in topics]
    body = _asked(actions, expirations, tuple(f"{one.topic}: too much" for one in topics)).body
    assert "and 950 more topics" in body
    assert "and 950 more reasons" in body
    assert len(body) < 10_000
