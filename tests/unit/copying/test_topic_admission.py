"""Back-offs of refused topics, on a clock that is moved by hand."""

import pytest

from include.tiering.copying.copy_batch import TopicAdmission
from include.tiering.errors import MetadataUnavailableError, QuotaExceededError, SourceChangedError
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.quotas.topic_quotas import Admission, NoTopicQuotas
from include.tiering.runs.contract import PlannedSegment
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import partition_of

SEGMENT = PlannedSegment(100, 149, 4_000)


class ScriptedQuotas(NoTopicQuotas):
    """Refuses the topics of `refused`; remembers who asked and what was told."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[tuple[int, str, int, int]] = []
        self.told: list[str] = []
        self.away = False

    def admit(self, broker_id: int, topic: str, *, size_bytes: int, records: int) -> Admission:
        self.asked.append((broker_id, topic, size_bytes, records))
        if topic in self.refused:
            raise QuotaExceededError(
                broker_id, topic, topic_rate=2, topic_threshold=1, total_rate=20, total_threshold=10
            )
        return super().admit(broker_id, topic, size_bytes=size_bytes, records=records)

    def accepted(self, admission: Admission) -> None:
        self.told.append(f"accepted {admission.topic}")

    def failed(self, admission: Admission) -> None:
        if self.away:
            raise MetadataUnavailableError("database away")
        self.told.append(f"failed {admission.topic}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas() -> ScriptedQuotas:
    return ScriptedQuotas()


@pytest.fixture
def admission(quotas: ScriptedQuotas, clock: ManualClock) -> TopicAdmission:
    return TopicAdmission(quotas, clock)


def replica(topic: str, partition: int = 0, broker_id: int = 1) -> ReplicaId:
    return ReplicaId(partition_of(topic, partition), broker_id, "directory")


def copy(admission: TopicAdmission, of: ReplicaId) -> bool:
    try:
        with admission.admitted(of, SEGMENT):
            return True
    except QuotaExceededError:
        return False


def test_asks_with_the_log_bytes_and_the_offsets_and_tells_how_it_ended(admission, quotas):
    assert copy(admission, replica("orders"))
    with pytest.raises(SourceChangedError), admission.admitted(replica("clicks"), SEGMENT):
        raise SourceChangedError("clicks-0", "changed")
    assert quotas.asked == [(1, "orders", 4_000, 50), (1, "clicks", 4_000, 50)]
    assert quotas.told == ["accepted orders", "failed clicks"]


def test_what_ended_a_copy_is_not_hidden_by_a_database_that_is_away(admission, quotas):
    quotas.away = True
    with pytest.raises(SourceChangedError), admission.admitted(replica("clicks"), SEGMENT):
        raise SourceChangedError("clicks-0", "changed")


def test_back_offs_double_up_to_thirty_seconds(admission, quotas, clock):
    quotas.refused.add("orders")
    waited = []
    for _ in range(7):
        assert not copy(admission, replica("orders"))
        began = clock.monotonic()
        while admission.waiting():
            clock.advance(0.5)
        waited.append(clock.monotonic() - began)
    assert waited == [1, 2, 4, 8, 16, 30, 30]


def test_an_admission_ends_the_back_off(admission, quotas, clock):
    quotas.refused.add("orders")
    for _ in range(3):
        copy(admission, replica("orders"))
    quotas.refused.clear()
    assert copy(admission, replica("orders"))
    assert (admission.waiting(), admission.throttled()) == (frozenset(), {})
    quotas.refused.add("orders")
    copy(admission, replica("orders"))
    clock.advance(1.0)
    assert admission.waiting() == frozenset()


def test_the_topics_other_partitions_on_that_broker_wait_without_asking(admission, quotas, clock):
    quotas.refused.add("orders")
    copy(admission, replica("orders", 0))
    held = {
        name: admission.must_wait(of)
        for name, of in {
            "other partition": replica("orders", 1),
            "other broker": replica("orders", 2, broker_id=2),
            "other topic": replica("clicks"),
        }.items()
    }
    assert held == {"other partition": True, "other broker": False, "other topic": False}
    waiting = {partition_of("orders", 0), partition_of("orders", 1)}
    assert (admission.waiting(), set(admission.throttled())) == (waiting, waiting)
    clock.advance(1.0)
    assert not admission.must_wait(replica("orders", 1))
    assert (admission.waiting(), set(admission.throttled())) == (frozenset(), waiting)
    assert len(quotas.asked) == 1
