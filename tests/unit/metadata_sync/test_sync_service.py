"""What the services of publication and ingestion ask before they do anything, and what they tell of each partition."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.errors import (
    ForeignClusterError,
    ForeignStoreError,
    PublicationRefusedError,
    RemoteMetadataError,
    SendingStoppedError,
    SettingError,
    TieringError,
)
from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.metadata_sync import service
from include.tiering.metadata_sync.service import (
    IngestionService,
    PublicationService,
    PublishedPartition,
    Unpublished,
    plan_partitions,
    publish_partitions,
    unpublished_segments,
)
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.ingestion_contract import IngestPosition
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.segments import partition_of

A, B, C = (partition_of("orders", number) for number in range(3))


class Publisher:
    """Sends two records about a partition; `errors` stop it after the first one."""

    def __init__(self, errors: Mapping[TopicIdPartition, TieringError] | None = None) -> None:
        self.errors = errors or {}
        self.calls: list[tuple[object, ...]] = []

    def plan(self, partition: TopicIdPartition, *, log_start_offset: int) -> str:
        return f"plan of {partition} from {log_start_offset}"

    def publish(
        self,
        partition: TopicIdPartition,
        *,
        log_start_offset: int,
        run_id: str,
        batch_id: str,
        on_progress: Callable[[int, int], None],
    ) -> Any:
        self.calls.append(("publish", partition, log_start_offset, run_id, batch_id))
        on_progress(1, 2)
        if partition in self.errors:
            raise self.errors[partition]
        on_progress(2, 2)
        return SimpleNamespace(plan=self.plan(partition, log_start_offset=log_start_offset))

    def confirm(self, partition: TopicIdPartition) -> None:
        self.calls.append(("confirm", partition))


STARTS = {A: 5, B: 0, C: 7}


def published(publisher: Publisher, progress: list[object] | None = None) -> tuple[PublishedPartition, ...]:
    noted = [] if progress is None else progress
    return publish_partitions(
        publisher,  # type: ignore[arg-type]
        STARTS,
        run_id="run",
        batch_id="batch",
        on_progress=lambda *told: noted.append(told),
    )


def test_each_partition_is_published_from_its_log_start_and_confirmed() -> None:
    publisher, progress = Publisher(), list[object]()
    plans: Any = plan_partitions(publisher, STARTS)  # type: ignore[arg-type]
    assert [(one.topic_id_partition, one.log_start_offset, one.records) for one in plans] == [
        (A, 5, 0),
        (B, 0, 0),
        (C, 7, 0),
    ]
    found: Any = published(publisher, progress)
    assert found == tuple(
        PublishedPartition(one.topic_id_partition, one.log_start_offset, one.plan, 2) for one in plans
    )
    assert publisher.calls == [
        call
        for partition, start in STARTS.items()
        for call in (("publish", partition, start, "run", "batch"), ("confirm", partition))
    ]
    assert progress == [(partition, done, 2) for partition in STARTS for done in (1, 2)]


def test_an_error_of_one_partition_stops_no_other_and_is_told_with_what_was_sent() -> None:
    publisher = Publisher({B: RemoteMetadataError("not in order")})
    first, second, third = published(publisher)
    assert (first.error, first.records, third.error, third.records) == (None, 2, None, 2)
    assert second == PublishedPartition(B, 0, None, 1, "RemoteMetadataError", "not in order", False)
    assert ("confirm", B) not in publisher.calls
    (_, refused, _) = published(Publisher({B: PublicationRefusedError("no")}))
    assert refused.retriable is PublicationRefusedError("no").retriable


def test_a_pause_stops_all() -> None:
    publisher = Publisher({B: SendingStoppedError("paused")})
    with pytest.raises(SendingStoppedError):
        published(publisher)
    assert [call[1] for call in publisher.calls if call[0] == "publish"] == [A, B]


def row(size_bytes: int, origin: SegmentOrigin = SegmentOrigin.PLATFORM) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(segment_size_bytes=size_bytes), origin=origin)


@pytest.mark.parametrize(("end_offset", "asked_from"), [(None, 0), (0, 1), (99, 100)])
@pytest.mark.parametrize("owner", TopicOwner)
def test_what_waits_for_publication_ends_above_what_is_published(
    owner: TopicOwner, end_offset: int | None, asked_from: int
) -> None:
    asked: list[int] = []

    def finished_from(partition: object, offset: int) -> Sequence[Any]:
        assert partition == A
        asked.append(offset)
        return [row(10), row(5), row(100, SegmentOrigin.BROKER)]

    metadata: Any = SimpleNamespace(selected=SimpleNamespace(finished_from=finished_from))
    registry: Any = SimpleNamespace(owner=lambda _: owner)
    total: Any = SimpleNamespace(topic_id_partition=A, end_offset=end_offset)
    waits = owner is TopicOwner.HANDING_OVER
    expected = Unpublished(A, 2, 15) if waits else Unpublished(A, 0, 0)
    assert unpublished_segments(metadata, registry, [total]) == (expected,)
    assert asked == ([asked_from] if waits else [])


# What a publication asks first. Each question may end it; then nothing is sent.


class Asked:
    """Notes the questions of a publication, in their order; raises `error` at the one that is named."""

    def __init__(self, fails_at: str = "", error: TieringError | None = None, *, broker_id: int = 9) -> None:
        self.questions: list[str] = []
        self._fails_at, self._error = fails_at, error
        self.publisher = Publisher()
        brokers = ModelBrokers()
        brokers.create_topic("orders", partitions=3, topic_id=A.topic_id)
        for number in range(3):
            brokers.partition(A.topic_id, number).earliest = 10 * number
        registry = SimpleNamespace(owner=lambda _: TopicOwner.PLATFORM)
        ports: dict[str, Any] = {
            "settings": SimpleNamespace(metadata_topic=SimpleNamespace(broker_id=broker_id)),
            "publisher": lambda: self.publisher,
            "brokers": lambda: brokers,
            "publications": SimpleNamespace(totals=self.shown),
            "require_allowed": lambda topic: self.ask(f"allowed {topic.topic}"),
            "metadata": SimpleNamespace(partitions=lambda: [A, C, partition_of("payments")]),
            "registry": registry,
            "log_dirs": SimpleNamespace(require_cluster=lambda: self.ask("cluster")),
            "ownership": SimpleNamespace(claim=lambda: self.ask("claim")),
            "recorder": SimpleNamespace(set=lambda *_: None, show=lambda *_: None),
        }
        self.service = PublicationService(**ports)

    def shown(self) -> list[Any]:
        self.ask("shown")
        return []

    def ask(self, question: str) -> None:
        self.questions.append(question)
        if self._error is not None and question == self._fails_at:
            raise self._error


@pytest.fixture(autouse=True)
def _no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "show_publication", lambda *_: None)


def test_a_publication_asks_in_this_order_and_shows_its_numbers_afterwards() -> None:
    asked = Asked()
    found = asked.service.publish("orders")
    assert asked.questions == ["allowed orders", "cluster", "claim", "shown"]
    assert [(one.topic_id_partition, one.log_start_offset) for one in found] == [(A, 0), (C, 20)]
    assert {call[3] for call in asked.publisher.calls if call[0] == "publish"} == {"publish"}


@pytest.mark.parametrize(
    ("fails_at", "error"),
    [
        ("allowed orders", PublicationRefusedError("a handover")),
        ("cluster", ForeignClusterError("another cluster")),
        ("claim", ForeignStoreError("another store")),
    ],
)
def test_each_objection_is_enough(fails_at: str, error: TieringError) -> None:
    asked = Asked(fails_at, error)
    with pytest.raises(type(error)):
        asked.service.publish("orders")
    assert asked.questions[-1] == fails_at
    assert asked.publisher.calls == []


def test_the_id_of_a_broker_is_no_id_of_a_publisher() -> None:
    asked = Asked(broker_id=1)
    with pytest.raises(SettingError, match="broker 1 exists"):
        asked.service.publish("orders")
    assert (asked.questions, asked.publisher.calls) == ([], [])


@pytest.mark.parametrize(("numbers", "found"), [(None, [A, C]), ({2}, [C]), ({0, 1}, [A])])
def test_partitions_are_those_that_are_named_and_have_segments(
    numbers: set[int] | None, found: list[TopicIdPartition]
) -> None:
    assert [one.topic_id_partition for one in Asked().service.plan("orders", numbers)] == found


def test_partitions_without_segments_are_refused() -> None:
    with pytest.raises(SettingError, match="no such partition has segments"):
        Asked().service.plan("orders", {1})


# What was read of the brokers.


def position(number: int, **changes: Any) -> IngestPosition:
    made: dict[str, Any] = {"next_offset": 9, "end_offset": 9, "bounds_read_at_ms": 100 + number, **changes}
    return IngestPosition(number, **made)


PARTITIONS = 50


def ingestion(positions: Sequence[IngestPosition], *, was_read: bool = True) -> IngestionService:
    topic = SimpleNamespace(partition_count=PARTITIONS) if was_read else None
    stored = SimpleNamespace(topic=lambda: topic, positions=lambda: positions)
    ports: dict[str, Any] = {
        "topic": lambda: None,
        "ingestion": stored,
        "metadata": SimpleNamespace(partitions=lambda: [A, B]),
        "log_dirs": None,
        "recorder": None,
    }
    return IngestionService(**ports)


def test_partitions_whose_metadata_were_read_to_the_end_are_told_with_the_time() -> None:
    of_a, of_b = (metadata_partition_of(each, PARTITIONS) for each in (A, B))
    assert of_a != of_b
    assert ingestion([position(of_a), position(of_b)]).read_of_brokers() == {A: 100 + of_a, B: 100 + of_b}
    assert ingestion([position(of_a)]).read_of_brokers() == {A: 100 + of_a}
    assert ingestion([position(of_a)], was_read=False).read_of_brokers() == {}


@pytest.mark.parametrize(
    "changes", [{"next_offset": 8}, {"stopped": "a record is missing"}, {"rereading_to": 5}], ids=str
)
def test_what_is_not_read_to_the_end_is_not_told(changes: dict[str, Any]) -> None:
    assert ingestion([position(metadata_partition_of(A, PARTITIONS), **changes)]).read_of_brokers() == {}
