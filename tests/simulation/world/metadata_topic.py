"""A model of `__remote_log_metadata`: answers get lost, and what was sent may arrive a good while later.

`TopicState` is the topic, shared by all, brokers too; `ModelMetadataTopic` is the `MetadataTopic` of one process.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from include.tiering.errors import MetadataTopicRangeError, MetadataTopicUnavailableError
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, MetadataTopicRecord, OffsetBounds
from include.tiering.model.segments import Uuid
from tests.simulation.kernel.scheduler import STEP_MS, Process
from tests.simulation.world.object_store import perform
from tests.simulation.world.remote_cache import Place, RemoteCache

PARTITIONS: Final = 3
UNDER_WAY_MS: Final = 30_000
"""How long a client and its sockets try to deliver a request of which nobody will hear."""


@dataclass(frozen=True, slots=True)
class _Late:
    partition: int
    value: bytes
    until_ms: int
    process: Process


class TopicState:
    """All records, and what brokers make of them."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.id = Uuid(b"metadata-topic-1")
        self.records: list[list[MetadataTopicRecord]] = [[] for _ in range(PARTITIONS)]
        self.caches: dict[Place, RemoteCache] = defaultdict(RemoteCache)
        self._late: list[_Late] = []

    def append(self, partition: int, value: bytes, process: Process | None, *, is_late: bool = False) -> int:
        """`process` None: a broker's. `is_late`: it was under way for a while. Returns the offset."""
        records = self.records[partition]
        record = MetadataTopicRecord(partition, len(records), self._world.scheduler.now_ms, value)
        records.append(record)
        self._world.watch.publishing.appended(record, process, is_late=is_late)
        return record.offset

    def send_late(self, partition: int, value: bytes, process: Process) -> None:
        """It is under way; whether it arrives is the world's decision."""
        until_ms = self._world.scheduler.now_ms + UNDER_WAY_MS
        self._late.append(_Late(partition, value, until_ms, process))

    def land_late(self) -> bool:
        """One that is under way arrives; False if there is none."""
        now_ms = self._world.scheduler.now_ms
        self._late = [one for one in self._late if one.until_ms > now_ms]
        if not self._late:
            return False
        late = self._late.pop(self._world.choices.number(len(self._late)))
        self.append(late.partition, late.value, late.process, is_late=True)
        return True


class ModelMetadataTopic:
    """As one process sees it."""

    def __init__(self, world: Any, process: Process) -> None:
        self._world = world
        self._state: TopicState = world.topic
        self._process = process

    def topic_id(self) -> Uuid:
        return self._request("topic_id", "", "brokers read", lambda: self._state.id)

    def partition_count(self) -> int:
        return len(self._state.records)

    def offsets(self, partition: int, *, wait: bool = True) -> OffsetBounds:
        return self._request("offsets", str(partition), "brokers read", lambda: self._bounds(partition))

    def read(self, partition: int, start_offset: int, *, end_offset: int) -> Iterator[MetadataTopicRecord]:
        begin, end = self._bounds(partition)
        if start_offset < begin or end_offset > end:
            raise MetadataTopicRangeError(f"{METADATA_TOPIC}-{partition} ends at {end}, not at {end_offset}")
        if start_offset < end_offset:
            self._request("read", f"{partition}, {start_offset} to {end_offset}", "brokers read", lambda: None)
        self._world.watch.publishing.read(self._process, partition, end_offset)
        return iter(self._state.records[partition][start_offset:end_offset])

    def append(self, partition: int, value: bytes) -> int:
        asked_ms = self._world.scheduler.now_ms

        def arrives() -> int:
            took_ms = self._world.scheduler.now_ms - asked_ms
            if took_ms > UNDER_WAY_MS:
                raise _no_answer("metadata_topic.append")
            return self._state.append(partition, value, self._process, is_late=took_ms > STEP_MS)

        return self._request(
            "append", str(partition), "append", arrives, lambda: self._state.send_late(partition, value, self._process)
        )

    def close(self) -> None:
        """There is nothing to give back."""

    def _bounds(self, partition: int) -> OffsetBounds:
        return OffsetBounds(0, len(self._state.records[partition]))

    def _request(self, what: str, detail: str, kind: str, effect: Any, half: Any = lambda: None) -> Any:
        return perform(
            self._process.scheduler,
            self._process,
            self._world,
            f"metadata_topic.{what}",
            detail,
            kind,
            effect,
            _no_answer,
            half,
        )


def _no_answer(label: str) -> Exception:
    return MetadataTopicUnavailableError(f"{label}: no answer in time")
