"""Publishing step by step: what is in the topic, whatever goes wrong in between."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import (
    ForeignRecordError,
    LeaseLostError,
    MetadataTopicRangeError,
    MetadataTopicUnavailableError,
    PublicationRefusedError,
    SendingStoppedError,
)
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import SegmentRecord, SegmentSnapshotRecord, segment_record
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.metadata_sync.plan_publication import PublicationStep, intent_for
from include.tiering.metadata_sync.publish import Publisher, PublishStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, Verdict
from tests.doubles.databases import AdjustableNow, empty
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.publication_world import RANGES, PublicationWorld, ignore, orders
from tests.doubles.segments import DELETE_STARTED, FINISHED, delete, finish, segment_of, update_of
from tests.doubles.tiered_topic import records_about, require_valid_prefix

_PARTITION = orders()
_CHOSEN = metadata_partition_of(_PARTITION, 3)
_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('publish') / 'tiering.db'}")
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def now() -> AdjustableNow:
    return AdjustableNow()


@pytest.fixture
def world(shared_engine: Engine, now: AdjustableNow) -> PublicationWorld:
    empty(shared_engine)
    return PublicationWorld(shared_engine, now)


@pytest.fixture
def topic() -> MemoryMetadataTopic:
    return MemoryMetadataTopic(partitions=3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _publish(publisher: Publisher, batch_id: str = "batch", **rest: Any) -> Any:
    arguments: dict[str, Any] = {"log_start_offset": 100, "run_id": "run", "batch_id": batch_id} | rest
    return publisher.publish(_PARTITION, **arguments)


def _finished(topic: MemoryMetadataTopic) -> list[tuple[int, int]]:
    return require_valid_prefix(records_about(topic, _PARTITION), log_start_offset=100)


def test_everything_that_passed_is_in_the_topic_where_brokers_look(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    segments, _ = world.copied(_PARTITION)
    told: list[tuple[int, int]] = []
    published = _publish(world.publisher(topic, clock), on_progress=lambda *done: told.append(done))
    assert published.records == 6
    assert told == [(number, 6) for number in range(1, 7)]
    assert _finished(topic) == list(RANGES)
    first = decode(records_about(topic, _PARTITION)[0].value)
    assert isinstance(first, SegmentRecord)
    assert (first.broker_id, first.event_timestamp_ms, first.custom_metadata) == (424_242, clock.now_ms(), None)
    assert str(first.segment_id.id) == str(segments[0].remote_log_segment_id.id)
    (total,) = world.journals.totals()
    assert (total.live_segments, total.end_offset) == (3, 420)


def test_publishing_again_sends_only_what_is_new(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION, RANGES[:2])
    _publish(world.publisher(topic, clock))
    assert _publish(world.publisher(topic, clock)).records == 0
    world.copied(_PARTITION, RANGES[2:], first_number=2)
    assert _publish(world.publisher(topic, clock)).records == 2
    assert _finished(topic) == list(RANGES)


def test_a_plan_changes_nothing_and_asks_nobody(world: PublicationWorld, clock: ManualClock) -> None:
    world.copied(_PARTITION, verdicts={2: Verdict.NONE})

    def refuse(call: str) -> None:
        raise AssertionError(call)

    plan = world.publisher(MemoryMetadataTopic(fault=refuse), clock).plan(_PARTITION, log_start_offset=100)
    assert len(plan.steps) == 4
    assert plan.withheld is not None
    assert plan.withheld.offset == 300
    assert world.journals.journal(_PARTITION) is None


@pytest.mark.parametrize("owner", [TopicOwner.PLATFORM, TopicOwner.BROKER, TopicOwner.NONE])
def test_only_what_is_being_handed_over_is_published(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, owner: TopicOwner
) -> None:
    world.copied(_PARTITION)
    world.owned_by(_PARTITION, owner)
    with pytest.raises(PublicationRefusedError, match=f"owner is {owner}, not handing-over"):
        _publish(world.publisher(topic, clock))
    assert topic.offsets(_CHOSEN).end == 0


def test_an_owner_that_changes_in_between_stops_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)

    def take_over(step: PublishStep, _partition: object, number: int) -> None:
        if (step, number) == (PublishStep.RECORDED, 2):
            world.owned_by(_PARTITION, TopicOwner.BROKER)

    with pytest.raises(PublicationRefusedError, match="owner is broker"):
        _publish(world.publisher(topic, clock, observe=take_over))
    assert _finished(topic) == [RANGES[0]]
    assert len(records_about(topic, _PARTITION)) == 3


def test_a_start_above_the_brokers_log_start_sends_nothing(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    with pytest.raises(PublicationRefusedError, match=r"above the broker's log start 42.*Nothing was sent"):
        _publish(world.publisher(topic, clock), log_start_offset=42)
    assert topic.offsets(_CHOSEN).end == 0


def test_a_pause_stops_between_records(world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock) -> None:
    world.copied(_PARTITION)

    def pause(step: PublishStep, _partition: object, number: int) -> None:
        if (step, number) == (PublishStep.INTENDED, 1):
            world.work.pause("orders", author="test")

    with pytest.raises(SendingStoppedError, match="paused"):
        _publish(world.publisher(topic, clock, observe=pause))
    assert _finished(topic) == [RANGES[0]]
    world.work.resume("orders", author="test")
    _publish(world.publisher(topic, clock))
    assert _finished(topic) == list(RANGES)


@pytest.mark.parametrize("fault", ["append", "appended", "read", "offsets"])
@pytest.mark.parametrize("occurrence", [1, 3, 6])
def test_an_answer_that_is_lost_anywhere_is_made_good(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, fault: str, occurrence: int
) -> None:
    world.copied(_PARTITION)
    left = [occurrence]

    def fail(call: str) -> None:
        left[0] -= call == fault
        if not left[0] and call == fault:
            raise MetadataTopicUnavailableError("no answer")

    topic.fault = fail
    publisher = world.publisher(topic, clock)
    try:
        _publish(publisher)
    except MetadataTopicUnavailableError:
        topic.fault = ignore
        require_valid_prefix(records_about(topic, _PARTITION), log_start_offset=100)
        _publish(publisher)
    topic.fault = ignore
    assert _finished(topic) == list(RANGES)
    assert len(records_about(topic, _PARTITION)) == 6


@pytest.mark.parametrize("step", PublishStep)
@pytest.mark.parametrize("number", [0, 1, 4])
def test_one_that_ends_anywhere_is_taken_up(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, step: PublishStep, number: int
) -> None:
    world.copied(_PARTITION)

    def end(at: PublishStep, _partition: object, sequence: int) -> None:
        if (at, sequence) == (step, number):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _publish(world.publisher(topic, clock, observe=end))
    require_valid_prefix(records_about(topic, _PARTITION), log_start_offset=100)
    _publish(world.publisher(topic, clock), batch_id="another")
    assert _finished(topic) == list(RANGES)
    assert len(records_about(topic, _PARTITION)) == 6


def test_a_topic_that_is_archived_again_gets_deletions_and_nothing_else(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    segments, fence = world.copied(_PARTITION, RANGES[:2])
    _publish(world.publisher(topic, clock))
    world.owned_by(_PARTITION, TopicOwner.PLATFORM)
    later = segment_of(_PARTITION, 9, 300, 420, {0: 300})
    finish(world.metadata, later, fence)
    world.metadata.record_verdict(later.remote_log_segment_id, Verdict.PASSED)
    publisher = world.publisher(topic, clock)
    assert publisher.plan(_PARTITION, log_start_offset=100).steps == ()
    assert _publish(publisher).records == 0
    assert _publish(publisher, log_start_offset=200).records == 2
    ids = [segment.remote_log_segment_id.id for segment in segments]
    assert world.journals.held_segments(_PARTITION) == {ids[1]}
    assert [row.metadata.state for row in world.metadata.list_segments(_PARTITION)] == [FINISHED] * 3


def test_a_topic_of_the_platform_that_was_never_published_is_refused(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    world.owned_by(_PARTITION, TopicOwner.PLATFORM)
    with pytest.raises(PublicationRefusedError, match="owner is platform, not handing-over"):
        _publish(world.publisher(topic, clock))


def _left_pending(world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, number: int = 2) -> bytes:
    """A publisher died before record `number` was sent; the bytes that it had written down."""

    def end(step: PublishStep, _partition: object, sequence: int) -> None:
        if (step, sequence) == (PublishStep.INTENDED, number):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _publish(world.publisher(topic, clock, observe=end))
    journal = world.journals.journal(_PARTITION)
    assert journal is not None
    assert journal.pending is not None
    return journal.pending.intent.value


def test_it_waits_until_nothing_of_a_dead_one_can_be_under_way(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, now: AdjustableNow
) -> None:
    world.copied(_PARTITION)
    value = _left_pending(world, topic, clock)
    now.advance(4_000)

    class Late(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            topic.append(_CHOSEN, value)

    late = Late()
    _publish(world.publisher(topic, late, settle_ms=10_000))
    assert late.slept == [6.0]
    assert _finished(topic) == list(RANGES)
    assert len(records_about(topic, _PARTITION)) == 6


def test_the_same_bytes_are_sent_again_so_one_that_comes_late_all_the_same_says_nothing_new(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    value = _left_pending(world, topic, clock)
    clock.advance(60)
    _publish(world.publisher(topic, clock))
    assert [record.value for record in records_about(topic, _PARTITION)].count(value) == 1
    topic.append(_CHOSEN, value)
    assert _publish(world.publisher(topic, clock)).repeated == 1


def test_a_late_beginning_of_a_segment_that_was_deleted_is_an_alarm(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    segments, fence = world.copied(_PARTITION)
    publisher = world.publisher(topic, clock)
    _publish(publisher)
    first = records_about(topic, _PARTITION)[0].value
    delete(world.metadata, segments[0], fence)
    _publish(publisher, log_start_offset=200)
    topic.append(_CHOSEN, first)
    with pytest.raises(ForeignRecordError, match="brokers have the segment again"):
        _publish(publisher, log_start_offset=200)


def test_what_is_not_to_be_sent_any_more_is_forgotten(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    segments, fence = world.copied(_PARTITION)
    _left_pending(world, topic, clock)
    world.metadata.update_segment(update_of(segments[1], DELETE_STARTED), expected=FINISHED, fence=fence)
    published = _publish(world.publisher(topic, clock))
    assert published.plan.withheld is not None
    assert published.plan.withheld.offset == 200
    assert _finished(topic) == [RANGES[0]]
    journal = world.journals.journal(_PARTITION)
    assert journal is not None
    assert journal.pending is None


def test_a_record_of_somebody_else_stops_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    publisher = world.publisher(topic, clock)
    _publish(publisher)
    journal = world.journals.journal(_PARTITION)
    assert journal is not None
    theirs = segment_of(_PARTITION, 77, 421, 500, {3: 421})
    step = PublicationStep(theirs, _STARTED)
    topic.append(_CHOSEN, intent_for(step, journal, broker_id=1, event_timestamp_ms=1).value)
    end = topic.offsets(_CHOSEN).end
    world.copied(_PARTITION, [(421, 500)], first_number=9)
    for again in (_publish, lambda publisher: publisher.confirm(_PARTITION)):
        with pytest.raises(ForeignRecordError, match="another writer wrote about it, at offset 6"):
            again(publisher)
    assert topic.offsets(_CHOSEN).end == end


def test_a_topic_that_knows_the_partition_before_we_began_stops_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    other = MemoryMetadataTopic(partitions=3)
    _publish(world.publisher(other, clock))
    for record in records_about(other, _PARTITION):
        topic.append(_CHOSEN, record.value)
    empty_world = PublicationWorld(world.engine, world.now_ms)
    empty(world.engine)
    empty_world.copied(_PARTITION)
    with pytest.raises(ForeignRecordError):
        _publish(empty_world.publisher(topic, clock))


def test_records_about_others_do_not_matter_and_poison_does(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    neighbour = next(
        one for one in map(orders, range(1, 99)) if metadata_partition_of(one, topic.partitions) == _CHOSEN
    )
    world.copied(neighbour, first_number=50)
    publisher = world.publisher(topic, clock)
    publisher.publish(neighbour, log_start_offset=100, run_id="run", batch_id="other")
    topic.leave_hole(_CHOSEN)
    _publish(publisher)
    assert _finished(topic) == list(RANGES)
    topic.append(_CHOSEN, b"\x01\x00\x00")
    with pytest.raises(ForeignRecordError, match="at which every broker stops"):
        _publish(publisher)


@pytest.mark.parametrize("kind", ["a snapshot", "a segment that begins as FINISHED"])
def test_poison_that_decodes_stops_it_whoever_it_is_about(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, kind: str
) -> None:
    world.copied(_PARTITION)
    finished = encode(replace(segment_record(_foreign()), state=FINISHED))
    topic.append(_CHOSEN, _snapshot() if kind == "a snapshot" else finished)
    with pytest.raises(ForeignRecordError, match="at which every broker stops"):
        _publish(world.publisher(topic, clock))
    assert topic.offsets(_CHOSEN).end == 1


def _foreign() -> RemoteLogSegmentMetadata:
    return segment_of(orders(98), 77, 0, 99)


def _snapshot() -> bytes:
    """Brokers keep it in files of their own, and stop over one in the topic."""
    segment = segment_record(_foreign())
    return encode(
        SegmentSnapshotRecord(
            id=segment.segment_id.id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            broker_id=segment.broker_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            event_timestamp_ms=segment.event_timestamp_ms,
            epochs=segment.epochs,
            size_bytes=segment.size_bytes,
            custom_metadata=None,
            state=FINISHED,
        )
    )


@pytest.mark.parametrize("kept", [0, 3])
def test_nothing_is_sent_behind_what_brokers_have_no_more(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, kept: int
) -> None:
    world.copied(_PARTITION, RANGES[:2])
    _publish(world.publisher(topic, clock))
    again = MemoryMetadataTopic(partitions=3)
    for record in records_about(topic, _PARTITION)[:kept]:
        again.append(_CHOSEN, record.value)
    while again.offsets(_CHOSEN).end < topic.offsets(_CHOSEN).end:
        again.leave_hole(_CHOSEN)
    world.copied(_PARTITION, RANGES[2:], first_number=2)
    with pytest.raises(ForeignRecordError, match="is missing: the topic was created again"):
        _publish(world.publisher(again, clock))
    assert len(records_about(again, _PARTITION)) == kept


def test_a_topic_that_ends_below_what_was_read_stops_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION, RANGES[:2])
    _publish(world.publisher(topic, clock))
    again = MemoryMetadataTopic(partitions=3)
    world.copied(_PARTITION, RANGES[2:], first_number=2)
    with pytest.raises(MetadataTopicRangeError, match="ends at 0, and was read up to 4"):
        _publish(world.publisher(again, clock))
    assert again.offsets(_CHOSEN).end == 0


def test_records_that_were_removed_before_they_were_read_stop_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION, RANGES[:1])
    publisher = world.publisher(topic, clock)
    _publish(publisher)
    topic.leave_hole(_CHOSEN)
    topic.leave_hole(_CHOSEN)
    topic.forget_before(_CHOSEN, 4)
    with pytest.raises(MetadataTopicRangeError):
        _publish(publisher)


def test_another_number_of_metadata_partitions_stops_it(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    publisher = world.publisher(topic, clock)
    _publish(publisher)
    topic.partitions = 4
    with pytest.raises(PublicationRefusedError, match="has 4 partitions, and had 3"):
        _publish(publisher)


def test_two_do_not_publish_one_partition(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    assert world.journals.claim(_PARTITION, run_id="run", batch_id="other", lease_ms=1_000) is not None
    with pytest.raises(LeaseLostError, match="another process publishes"):
        _publish(world.publisher(topic, clock))


def test_one_that_slept_longer_than_its_lease_sends_nothing(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, now: AdjustableNow
) -> None:
    world.copied(_PARTITION)

    def sleep(step: PublishStep, _partition: object, number: int) -> None:
        if (step, number) == (PublishStep.INTENDED, 3):
            clock.advance(121)
            now.advance(121_000)

    with pytest.raises(LeaseLostError, match="suspended"):
        _publish(world.publisher(topic, clock, observe=sleep))
    assert len(records_about(topic, _PARTITION)) == 3


def test_one_that_lost_its_lease_changes_nothing(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, now: AdjustableNow
) -> None:
    world.copied(_PARTITION)

    def lose(step: PublishStep, _partition: object, number: int) -> None:
        if (step, number) == (PublishStep.RECORDED, 2):
            now.advance(120_001)
            assert world.journals.claim(_PARTITION, run_id="run", batch_id="other", lease_ms=120_000) is not None

    with pytest.raises(LeaseLostError):
        _publish(world.publisher(topic, clock, observe=lose))
    assert len(records_about(topic, _PARTITION)) == 3


def test_a_lease_is_prolonged_while_it_works(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, now: AdjustableNow
) -> None:
    world.copied(_PARTITION)

    def work_on(step: PublishStep, _partition: object, _number: int) -> None:
        if step is not PublishStep.INTENDED:
            clock.advance(25)
            now.advance(25_000)

    _publish(world.publisher(topic, clock, observe=work_on))
    assert _finished(topic) == list(RANGES)


def test_what_was_published_is_confirmed_by_reading_all_of_it_again(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    publisher = world.publisher(topic, clock)
    assert publisher.confirm(_PARTITION) is None
    _publish(publisher)
    journal = publisher.confirm(_PARTITION)
    assert journal is not None
    assert len(journal.records) == 6
    replaced = MemoryMetadataTopic(partitions=3)
    for record in records_about(topic, _PARTITION)[:5]:
        replaced.append(_CHOSEN, record.value)
    replaced.leave_hole(_CHOSEN)
    with pytest.raises(ForeignRecordError, match="is missing: the topic was created again"):
        world.publisher(replaced, clock).confirm(_PARTITION)


def test_nothing_is_confirmed_while_a_record_is_pending(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock
) -> None:
    world.copied(_PARTITION)
    _left_pending(world, topic, clock)
    with pytest.raises(PublicationRefusedError, match="record 2 was not read back"):
        world.publisher(topic, clock).confirm(_PARTITION)


def test_an_acknowledged_record_that_is_not_there_is_an_error(world: PublicationWorld, clock: ManualClock) -> None:
    class Lossy(MemoryMetadataTopic):
        def append(self, partition: int, value: bytes) -> int:
            offset = self.offsets(partition).end
            self.leave_hole(partition)
            return offset

    world.copied(_PARTITION)
    with pytest.raises(MetadataTopicRangeError, match="acknowledged at offset 0 is missing"):
        _publish(world.publisher(Lossy(partitions=3), clock))


def test_deletions_here_are_told_there(world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock) -> None:
    segments, fence = world.copied(_PARTITION)
    publisher = world.publisher(topic, clock)
    _publish(publisher)
    world.metadata.update_segment(update_of(segments[0], DELETE_STARTED), expected=FINISHED, fence=fence)
    assert _publish(publisher, log_start_offset=200).records == 1
    world.metadata.update_segment(
        update_of(segments[0], RemoteLogSegmentState.DELETE_SEGMENT_FINISHED), expected=DELETE_STARTED, fence=fence
    )
    assert _publish(publisher, log_start_offset=200).records == 1
    assert _finished(topic) == list(RANGES[1:])


def test_one_that_slept_so_long_that_the_next_one_no_longer_waits_for_its_record_sends_nothing(
    world: PublicationWorld, topic: MemoryMetadataTopic, clock: ManualClock, now: AdjustableNow
) -> None:
    """Its lease may hold by its own clock: a process that goes on with the same batch takes it away, and waits
    `settle_ms` from when the record was written down."""
    world.copied(_PARTITION)

    def sleep(step: PublishStep, _partition: object, number: int) -> None:
        if (step, number) == (PublishStep.INTENDED, 3):
            clock.advance(6)
            now.advance(6_000)

    with pytest.raises(LeaseLostError, match="suspended"):
        _publish(world.publisher(topic, clock, observe=sleep, settle_ms=40_000))
    assert len(records_about(topic, _PARTITION)) == 3
    _publish(world.publisher(topic, clock))
    assert _finished(topic) == list(RANGES)
