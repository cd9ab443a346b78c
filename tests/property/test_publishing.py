"""Whatever is copied, verified, deleted, lost or killed: the topic always has what a broker could work with."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.metadata_sync.publish import PublishStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Verdict
from tests.doubles.databases import empty
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.publication_world import PublicationWorld, ignore, orders
from tests.doubles.segments import FINISHED, delete, fence_of, finish, segment_of
from tests.doubles.tiered_topic import records_about, require_valid_prefix

_PARTITION = orders()
_COPY = st.tuples(st.just("copy"), st.integers(0, 30), st.integers(1, 60), st.sampled_from(Verdict))
_KILL = st.tuples(st.just("kill"), st.sampled_from(PublishStep), st.integers(0, 4))
_FAULT = st.tuples(st.just("fault"), st.sampled_from(["append", "appended", "read", "offsets"]), st.integers(1, 5))
_OTHER = st.tuples(st.sampled_from(["publish", "pass", "delete lowest"]))
_ACTIONS = st.lists(st.one_of(_COPY, _KILL, _KILL, _FAULT, _OTHER), min_size=3, max_size=14)


class _Killed(BaseException):
    """The publisher died here."""


class _Story:
    """One partition, from the first copy on."""

    def __init__(self, engine: Engine) -> None:
        empty(engine)
        self.world = PublicationWorld(engine)
        self.topic = MemoryMetadataTopic(partitions=3)
        self.clock = ManualClock()
        self.fence = fence_of(engine, _PARTITION)
        self.log_start = 100
        self.end = 99
        self.copies = 0

    def copy(self, overlap: int, length: int, verdict: Verdict) -> None:
        """The next segment; it may begin a little before the last one's end, as after a change of leaders."""
        self.world.owned_by(_PARTITION, TopicOwner.PLATFORM)
        start = max(self.log_start, self.end + 1 - overlap)
        self.end += length
        self.copies += 1
        segment = segment_of(_PARTITION, self.copies, min(start, self.end), self.end)
        finish(self.world.metadata, segment, self.fence)
        if verdict is not Verdict.NONE and verdict is not Verdict.FAILED:
            self.world.metadata.record_verdict(segment.remote_log_segment_id, verdict)

    def delete_lowest(self) -> None:
        rows = [row for row in self.world.metadata.list_segments(_PARTITION) if row.metadata.state is FINISHED]
        if rows:
            delete(self.world.metadata, rows[0].metadata, self.fence)
            self.log_start = max(self.log_start, rows[0].metadata.end_offset + 1)

    def pass_all(self) -> None:
        for row in self.world.metadata.list_segments(_PARTITION):
            self.world.metadata.record_verdict(row.metadata.remote_log_segment_id, Verdict.PASSED)

    def publish(self, step: PublishStep | None = None, ordinal: int = 0) -> None:
        """It dies at the `ordinal`-th time that it comes to `step`."""
        self.world.owned_by(_PARTITION, TopicOwner.HANDING_OVER)
        left = [ordinal]

        def die(at: PublishStep, *_: object) -> None:
            if at is step:
                left[0] -= 1
                if left[0] < 0:
                    raise _Killed

        publisher = self.world.publisher(self.topic, self.clock, observe=die)
        publisher.publish(_PARTITION, log_start_offset=self.log_start, run_id="run", batch_id="batch")

    def lose_an_answer(self, call: str, ordinal: int) -> None:
        left = [ordinal]

        def fail(named: str) -> None:
            left[0] -= named == call
            if not left[0] and named == call:
                raise MetadataTopicUnavailableError("no answer")

        self.topic.fault = fail
        with suppress(MetadataTopicUnavailableError):
            self.publish()
        self.topic.fault = ignore

    def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("copy", overlap, length, verdict):
                self.copy(overlap, length, verdict)
            case ("kill", step, ordinal):
                with suppress(_Killed):
                    self.publish(step, ordinal)
            case ("fault", call, ordinal):
                self.lose_an_answer(call, ordinal)
            case ("delete lowest",):
                self.delete_lowest()
            case ("pass",):
                self.pass_all()
            case _:
                self.publish()

    def published(self) -> list[tuple[int, int]]:
        """What the topic has as FINISHED; nothing that is still here has not passed."""
        rows = self.world.metadata.list_segments(_PARTITION)
        unfit = {(r.metadata.start_offset, r.metadata.end_offset) for r in rows if r.verdict is not Verdict.PASSED}
        published = self._valid()
        assert not unfit & set(published)
        return published

    def _valid(self) -> list[tuple[int, int]]:
        return require_valid_prefix(records_about(self.topic, _PARTITION), log_start_offset=self.log_start)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('publishing') / 'tiering.db'}", durable=False)
    upgrade(engine)
    yield engine
    engine.dispose()


@example([("kill", PublishStep.INTENDED, 3), ("copy", 21, 1, Verdict.NONE), ("copy", 0, 1, Verdict.NONE)])
@example([("copy", 20, 1, Verdict.NONE), ("delete lowest",), ("delete lowest",)])
@example([("publish",), ("copy", 20, 1, Verdict.PASSED), ("publish",), ("delete lowest",), ("delete lowest",)])
@given(_ACTIONS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_topic_always_has_what_a_broker_could_work_with(engine: Engine, actions: list[tuple[Any, ...]]) -> None:
    story = _Story(engine)
    for length in (50, 20):
        story.copy(0, length, Verdict.PASSED)
    for action in actions:
        story.act(action)
        story.published()
    story.pass_all()
    story.publish()
    published = story.published()
    rows = story.world.metadata.list_segments(_PARTITION)
    if any(row.metadata.end_offset >= story.log_start for row in rows):
        assert max(end for _, end in published) == story.end
    before = records_about(story.topic, _PARTITION)
    story.publish()
    assert records_about(story.topic, _PARTITION) == before
