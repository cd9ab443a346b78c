"""A plan that reads a part of a log decides what it would decide about all of it, over random logs.

The oracle is the same decision over every row, which is compared with a slow one in `test_retention_decisions`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from sqlalchemy import Engine, insert

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.finish_abandoned import abandoned_copies_of
from include.tiering.database.schema import divergences, partitions, segment_epochs, segments, topics
from include.tiering.expiration import plan as planning
from include.tiering.expiration.plan import ExpirationPlan, ExpirationPlanner
from include.tiering.expiration.rules import decide_deletions, is_one_lineage
from include.tiering.metadata_sync.plan_publication import (
    PublicationStep,
    intent_for,
    plan_publication,
    plan_withdrawal,
)
from include.tiering.metadata_sync.publication_contract import Journal, JournalRecord
from include.tiering.model.histories import Lineage
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.retention import RestOfLog, RetentionInput
from include.tiering.model.segments import (
    Depth,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.selected_segments import EpochExtent, OldestSegments, listing_order
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import count_in, encode_leader_epochs, epoch_values_of, values_of
from include.tiering.segments.sql_selected import SqlSelectedSegments
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.verification.plan import RollingSample, VerificationSample, plan_verification
from include.tiering.verification.service import candidates
from include.tiering.verification.verify_segments import _of_run, _unpassed, subjects_of
from tests.doubles.databases import empty
from tests.doubles.epoch_worlds import MOST_OFFSET
from tests.doubles.segments import CLUSTER_ID, DELETE_FINISHED, FINISHED, segment_of
from tests.doubles.slow_expiration import PARTITION
from tests.property.test_retention_decisions import NOW_MS, inputs


def extents_of(found: Collection[RemoteLogSegmentMetadata]) -> list[EpochExtent]:
    """The exact extents of the FINISHED segments."""
    parts = [
        (epoch, start, segment.end_offset_of_epoch(epoch) or 0)
        for segment in found
        for epoch, start in segment.segment_leader_epochs
    ]
    epochs = sorted({epoch for epoch, start, end in parts if end >= start})
    return [
        EpochExtent(
            epoch,
            min(start for each, start, _ in parts if each == epoch),
            max(end for each, start, end in parts if each == epoch and end >= start),
        )
        for epoch in epochs
    ]


@st.composite
def long_logs(draw: st.DrawFn) -> RetentionInput:
    """Inputs of which usually only the beginning expires."""
    given_ = draw(inputs())
    return replace(
        given_,
        log_start_offset=draw(st.sampled_from([0, 0, given_.log_start_offset])),
        log_end_offset=None,
        local_only_bytes=draw(st.none() | st.integers(0, 5)),
        retention_ms=draw(st.none() | st.integers(NOW_MS - MOST_OFFSET, NOW_MS)),
        retention_bytes=draw(st.none() | st.integers(5, 50)),
    )


@st.composite
def long_logs_with_published(draw: st.DrawFn) -> RetentionInput:
    whole = draw(long_logs())
    ids = [segment.remote_log_segment_id for segment in whole.segments if segment.is_finished]
    return replace(whole, published=frozenset(draw(st.lists(st.sampled_from(ids), max_size=2))))


def part_of(whole: RetentionInput, after_offset: int) -> RetentionInput | None:
    """The same with a part of the segments and the sums of the others; None if all have to be read."""
    finished = [segment for segment in whole.segments if segment.is_finished]
    rest = [each for each in finished if each.start_offset > after_offset]
    if not rest or not whole.lineage.entries:
        return None
    size_bytes = 0
    all_bytes = sum(segment.segment_size_bytes for segment in finished) + (whole.local_only_bytes or 0)
    if whole.retention_bytes is not None and all_bytes > whole.retention_bytes:
        is_plain = not whole.left & {segment.remote_log_segment_id for segment in finished}
        if not is_plain or not is_one_lineage(whole.lineage, extents_of(finished)):
            return None
        size_bytes = sum(segment.segment_size_bytes for segment in rest)
    totals = RestOfLog(
        after_offset,
        min(epoch for segment in rest for epoch, _ in segment.segment_leader_epochs),
        size_bytes,
        sum(segment.max_timestamp_ms < 0 for segment in rest),
        max(segment.max_timestamp_ms for segment in rest),
    )
    return replace(whole, segments=tuple(each for each in whole.segments if each not in rest), rest=totals)


@given(long_logs_with_published())
def test_what_a_part_concludes_is_what_the_whole_does(whole: RetentionInput) -> None:
    expected = decide_deletions(whole)
    assert expected.is_conclusive
    concluded = 0
    for after_offset in range(-1, MOST_OFFSET + 1):
        part = part_of(whole, after_offset)
        if part is not None and (outcome := decide_deletions(part)).is_conclusive:
            concluded += 1
            assert outcome == expected
    event(f"concludes: {concluded > 0}, deletes: {bool(expected.decisions)}")


def test_a_part_concludes_nothing_if_a_published_segment_of_the_rest_has_an_earlier_epoch() -> None:
    """It lies behind the others, but a scan comes to it first, and ends there."""
    expired, kept = (segment_of(PARTITION, n, start, start, {2: start}) for n, start in ((1, 10), (2, 11)))
    published = segment_of(PARTITION, 3, 12, 15, {0: 12}, state=FINISHED)
    whole = RetentionInput(
        PARTITION,
        (replace(expired, max_timestamp_ms=0), replace(kept, max_timestamp_ms=NOW_MS), published),
        LeaderEpochs.of([(0, 0), (2, 10)]),
        log_start_offset=0,
        now_ms=NOW_MS,
        retention_ms=NOW_MS // 2,
        published=frozenset({published.remote_log_segment_id}),
    )
    whole = replace(whole, segments=tuple(replace(segment, state=FINISHED) for segment in whole.segments))
    assert decide_deletions(whole).decisions == ()
    part = part_of(whole, after_offset=11)
    assert part is not None
    assert not decide_deletions(part).is_conclusive


@given(inputs())
def test_segments_of_one_lineage_are_within_it_from_any_log_start_that_they_reach(given_: RetentionInput) -> None:
    finished = [segment for segment in given_.segments if segment.is_finished]
    if not is_one_lineage(given_.lineage, extents_of(finished)):
        return
    event(f"several epochs: {len(given_.lineage) > 1}")
    for log_start_offset in range(MOST_OFFSET + 15):
        lineage = Lineage.of(given_.lineage, log_start_offset=log_start_offset)
        assert all(lineage.holds(each) for each in finished if each.end_offset >= log_start_offset)


@pytest.mark.parametrize("missing", ["topic", "lineage"])
def test_a_part_is_refused_where_every_segment_matters(missing: str) -> None:
    rest = RestOfLog(0, 0, 0)
    some = RetentionInput(PARTITION, (), LeaderEpochs(), 0, NOW_MS, rest=rest)
    some = replace(some, topic_deletion_due=True) if missing == "topic" else some
    with pytest.raises(ValueError, match="every segment matters"):
        decide_deletions(some)


class ReadsEverything:
    """The oracle: `SelectedSegments` that reads every segment and keeps what it is asked for."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self._metadata = SqlRemoteLogMetadata(engine, cluster_id)

    def segments_under_way(self, partition: TopicIdPartition) -> list[SegmentRow]:
        return [row for row in self._metadata.list_segments(partition) if not row.metadata.is_finished]

    def segments_with_ids(
        self, partition: TopicIdPartition, ids: Iterable[Uuid], *, finished_from: int | None = None
    ) -> list[SegmentRow]:
        wanted = set(ids)
        reaching = (
            set() if finished_from is None else {id_of(row) for row in self.finished_from(partition, finished_from)}
        )
        return [row for row in self._metadata.list_segments(partition) if id_of(row) in wanted | reaching]

    def finished_from(self, partition: TopicIdPartition, offset: int) -> list[SegmentRow]:
        return [row for row in self._finished(partition) if row.metadata.end_offset >= offset]

    def finished_ids(self, partition: TopicIdPartition) -> list[Uuid]:
        return [id_of(row) for row in self._finished(partition)]

    def counters_agree(self, _partition: TopicIdPartition) -> bool:
        return True

    def finished_before(self, row: SegmentRow) -> RemoteLogSegmentMetadata | None:
        others = self._finished(row.metadata.topic_id_partition)
        ordered = sorted(others, key=lambda other: (other.history, other.metadata.end_offset))
        place = [id_of(other) for other in ordered].index(id_of(row))
        before = ordered[place - 1] if place else None
        return None if before is None or before.history != row.history else before.metadata

    def oldest_segments(self, partition: TopicIdPartition, *_: object, **__: object) -> OldestSegments:
        rows = self._metadata.list_segments(partition)
        return OldestSegments(tuple(row for row in rows if row.origin is SegmentOrigin.PLATFORM), None)

    def finished_with_verdicts(self, verdicts: Mapping[Verdict, int | None]) -> list[SegmentRow]:
        return [
            row
            for partition in self._metadata.partitions()
            for row in self._finished(partition)
            if row.verdict in verdicts and _is_of_time(row, verdicts[row.verdict])
        ]

    def _finished(self, partition: TopicIdPartition) -> list[SegmentRow]:
        return [row for row in self._metadata.list_segments(partition) if row.metadata.is_finished]


def _is_of_time(row: SegmentRow, at_or_before_ms: int | None) -> bool:
    return at_or_before_ms is None or row.verdict_at_ms is None or row.verdict_at_ms <= at_or_before_ms


def id_of(row: SegmentRow) -> Uuid:
    return row.metadata.remote_log_segment_id.id


def stores_of(engine: Engine) -> tuple[SqlRemoteLogMetadata, SqlRemoteLogMetadata]:
    """The product's, and one with the oracle's queries."""
    plain = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    plain.selected = cast("SqlSelectedSegments", ReadsEverything(engine, CLUSTER_ID))
    return SqlRemoteLogMetadata(engine, CLUSTER_ID), plain


def store(
    engine: Engine,
    given_: RetentionInput,
    brokers: Collection[RemoteLogSegmentMetadata],
    history: int,
    verdicts: Mapping[RemoteLogSegmentId, tuple[Verdict, int | None]] | None = None,
) -> None:
    """Rows as if they had been recorded. From `history` on, if there is one, another history is followed."""
    empty(engine)
    key: dict[str, object] = {"cluster_id": CLUSTER_ID, "topic_id": str(PARTITION.topic_id)}
    with engine.begin() as connection:
        connection.execute(insert(topics).values(**key, name=PARTITION.topic, owner=str(TopicOwner.PLATFORM)))
        key |= {"partition": PARTITION.partition}
        connection.execute(
            insert(partitions).values(
                **key, log_start_offset=given_.log_start_offset, leader_epochs=encode_leader_epochs(given_.lineage)
            )
        )
        for segment in given_.segments:
            superseded_at_ms = given_.superseded_at_ms.get(segment.remote_log_segment_id)
            verdict, verdict_at_ms = (verdicts or {}).get(segment.remote_log_segment_id, (Verdict.NONE, None))
            values = values_of(CLUSTER_ID, segment) | {
                "verdict": str(verdict),
                "verdict_at_ms": verdict_at_ms,
                "verdict_detail": "",
                "fencing_token": 1,
                "started_at_ms": 1,
                "delete_started_at_ms": superseded_at_ms,
                "superseded_by": None if superseded_at_ms is None else str(PARTITION.topic_id),
                "origin": str(SegmentOrigin.BROKER if segment in brokers else SegmentOrigin.PLATFORM),
                "history": int(segment.start_offset >= history),
            }
            segment_key = connection.execute(insert(segments).values(**values)).inserted_primary_key
            assert segment_key is not None
            connection.execute(insert(segment_epochs), epoch_values_of(CLUSTER_ID, segment_key[0], segment))
            count_in(connection, CLUSTER_ID, segment)
        if history <= MOST_OFFSET:
            connection.execute(
                insert(divergences).values(
                    **key,
                    number=1,
                    first_offset=history,
                    last_offset=history + 5,
                    archive_epochs="0",
                    source_epochs="1",
                    seen_by="plan",
                    seen_at_ms=1,
                    followed_from=history,
                    reason="agreed",
                    author="me",
                    decided_at_ms=1,
                )
            )


def plans(
    engine: Engine,
    given_: RetentionInput,
    held: Callable[[TopicIdPartition], Collection[Uuid]],
    first_read: int,
    planned: PlannedExpiration,
) -> Iterator[tuple[ExpirationPlan, PlannedExpiration | None]]:
    """The plan of the product, that of the oracle; each with what it plans again of `planned`."""
    retention = TopicRetention(given_.retention_ms, given_.retention_bytes)
    for metadata in stores_of(engine):
        planner = ExpirationPlanner(
            metadata,
            SqlTopicRegistry(engine, CLUSTER_ID),
            SqlWorkStore(engine, CLUSTER_ID),
            {PARTITION.topic: retention},
            given_.abandoned_copy_expiry_ms,
            superseded_hold_ms=given_.superseded_hold_ms,
            held=held,
        )
        with patch.object(planning, "_FIRST_READ", first_read), patch.object(planning, "_MORE_EACH_TIME", 2):
            yield (
                planner.plan("run", [PARTITION], None, now_ms=given_.now_ms),
                planner.plan_again(planned, now_ms=given_.now_ms),
            )


@given(long_logs(), st.data())
def test_a_plan_from_counters_and_indexes_is_that_from_every_row(
    engine: Engine, given_: RetentionInput, data: st.DataObject
) -> None:
    finished = [segment for segment in given_.segments if segment.is_finished]
    brokers = data.draw(st.lists(st.sampled_from(finished), max_size=2) if data.draw(st.booleans()) else st.just([]))
    history = data.draw(st.sampled_from([99, 99]) | st.integers(0, MOST_OFFSET), "the other history begins at")
    named = data.draw(st.lists(st.sampled_from(finished), max_size=1) if data.draw(st.booleans()) else st.just([]))
    store(engine, given_, brokers, history)
    ids = [segment.remote_log_segment_id.id for segment in named]
    local_bytes, behind = data.draw(st.none() | st.integers(0, 30)), data.draw(st.integers(-1, MOST_OFFSET))
    planned = PlannedExpiration(PARTITION, 0, 0, (), local_bytes, behind, int(history <= MOST_OFFSET))
    found, expected = plans(engine, given_, lambda _: ids, data.draw(st.integers(1, 4)), planned)
    event(f"expires: {bool(found[0].expirations)}")
    assert found == expected


@st.composite
def verdicts_of(draw: st.DrawFn, given_: RetentionInput) -> dict[RemoteLogSegmentId, tuple[Verdict, int | None]]:
    """Few verdicts are those of the partition's youngest segments, as after a copy."""
    verdict = st.tuples(st.sampled_from(Verdict), st.none() | st.integers(0, NOW_MS))
    return {segment.remote_log_segment_id: draw(verdict) for segment in given_.segments}


@given(long_logs(), st.data())
def test_other_plans_from_indexes_are_those_from_every_row(
    engine: Engine, given_: RetentionInput, data: st.DataObject
) -> None:
    """The look for abandoned copies, both quality checks, and proofs about offsets and deletions."""
    finished = [segment for segment in given_.segments if segment.is_finished]
    brokers = data.draw(st.lists(st.sampled_from(finished), max_size=2))
    history = data.draw(st.sampled_from([99]) | st.integers(0, MOST_OFFSET), "the other history begins at")
    store(engine, given_, brokers, history, data.draw(verdicts_of(given_)))
    wanted = data.draw(st.lists(st.sampled_from([segment.remote_log_segment_id for segment in given_.segments])))
    offset = data.draw(st.integers(0, MOST_OFFSET + 1))
    ids = {segment_id.id for segment_id in wanted}

    def answers(metadata: SqlRemoteLogMetadata) -> list[object]:
        return [
            abandoned_copies_of(metadata, PARTITION),
            list(_unpassed(metadata)),
            list(_of_run(metadata, "run")),
            list(subjects_of(metadata, {PARTITION: set(wanted)})),
            metadata.selected.finished_from(PARTITION, offset),
            metadata.selected.segments_with_ids(PARTITION, ids),
            metadata.selected.segments_with_ids(PARTITION, ids, finished_from=offset),
        ]

    found, expected = map(answers, stores_of(engine))
    assert found == expected


@st.composite
def samples(draw: st.DrawFn) -> VerificationSample:
    return VerificationSample(
        due=draw(st.booleans()),
        failed=draw(st.booleans()),
        older_than_ms=draw(st.none() | st.integers(0, NOW_MS)),
        rolling_sample=draw(st.none() | st.builds(RollingSample.of, st.floats(0.1, 0.9), st.integers(0, 99))),
        everything=draw(st.sampled_from([False] * 5 + [True])),
    )


@given(long_logs(), samples(), st.data())
def test_a_verification_plan_from_verdicts_and_ids_is_that_from_every_row(
    engine: Engine, given_: RetentionInput, sample: VerificationSample, data: st.DataObject
) -> None:
    store(engine, given_, (), 99, data.draw(verdicts_of(given_)))
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    max_age_ms = data.draw(st.integers(1, NOW_MS))
    plan = partial(
        plan_verification,
        sample=sample,
        run_id="run",
        depth=Depth.SHALLOW,
        quotas=QuotasInForce(0, {}),
        now_ms=NOW_MS,
        max_age_ms=max_age_ms,
        limit_bytes=data.draw(st.none() | st.integers(0, 20)),
    )
    found = plan(candidates(metadata, [PARTITION], sample, now_ms=NOW_MS, max_age_ms=max_age_ms))
    expected = plan(metadata.list_segments(PARTITION))
    event(f"chooses: {bool(expected.planned)}")
    assert sorted(found.planned, key=str) == sorted(expected.planned, key=str)
    assert (found.cost, found.left_out) == (expected.cost, expected.left_out)


@st.composite
def journals(draw: st.DrawFn, segments: Sequence[RemoteLogSegmentMetadata]) -> Journal:
    """What was published of some of these segments, in any order; the last record may be pending."""
    journal = Journal(metadata_partition=0, partition_count=1, next_offset=0)
    steps = [
        # No empty segment is ever published.
        PublicationStep(replace(segment, segment_size_bytes=max(1, segment.segment_size_bytes)), state)
        for segment in draw(st.lists(st.sampled_from(segments), unique=True, max_size=4))
        for state in list(RemoteLogSegmentState)[: draw(st.integers(1, 4))]
    ]
    pending = draw(st.booleans())
    records = [
        JournalRecord(number, intent_for(step, journal, broker_id=1, event_timestamp_ms=number), 0, number)
        for number, step in enumerate(steps)
    ]
    if records and pending:
        records[-1] = replace(records[-1], offset=None)
    return replace(journal, records=tuple(records), next_offset=len(records))


@given(long_logs(), st.data())
def test_a_publication_plan_needs_what_the_journal_has_and_what_reaches_into_the_brokers_log(
    given_: RetentionInput, data: st.DataObject
) -> None:
    verdict = st.sampled_from([Verdict.PASSED] * 4 + [Verdict.FAILED, Verdict.NONE])
    history = data.draw(st.sampled_from([99, 99]) | st.integers(0, MOST_OFFSET))
    existing = sorted((each for each in given_.segments if each.state is not DELETE_FINISHED), key=_place)
    rows = {
        segment.remote_log_segment_id.id: SegmentRow(
            segment, data.draw(verdict), None, history=int(segment.start_offset >= history)
        )
        for segment in existing
    }
    journal = data.draw(journals(given_.segments))
    log_start_offset = data.draw(st.integers(0, MOST_OFFSET + 1))
    known = {record.intent.segment_id for record in journal.records}
    part = {
        id_: row
        for id_, row in rows.items()
        if id_ in known or (row.metadata.is_finished and row.metadata.end_offset >= log_start_offset)
    }
    for plan in (plan_publication, plan_withdrawal):
        whole = plan(PARTITION, journal, rows, log_start_offset=log_start_offset)
        event(f"{plan.__name__} sends: {bool(whole.steps)}")
        assert plan(PARTITION, journal, part, log_start_offset=log_start_offset) == whole


def _place(segment: RemoteLogSegmentMetadata) -> tuple[int, bool, int]:
    return listing_order(SegmentRow(segment, Verdict.NONE, None))
