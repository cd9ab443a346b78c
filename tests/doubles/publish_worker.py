"""A process that publishes what there is of one partition and, if told to, dies by SIGKILL at a named point of it.

    python -m tests.doubles.publish_worker PARTITION --database URL --topic TOPIC [--log-start-offset N]
        [--settle-ms N] [--kill-at STEP --number N]

TOPIC is the directory of a `FileMetadataTopic`, or a broker's host:port. STEP is a value of `PublishStep`, or
`IN_FLIGHT`: the client was given the request, and nobody waits for the answer. N is the record's number in the journal.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from include.tiering.clock import SystemClock
from include.tiering.database.engine import open_engine
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC
from include.tiering.kafka.metadata_topic.kafka import KafkaMetadataTopic
from include.tiering.metadata_sync.publish import PublishStep
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.dying import die
from tests.doubles.kafka_lab.cluster import client_configuration
from tests.doubles.memory_metadata_topic import FileMetadataTopic
from tests.doubles.publication_world import LOG_START_OFFSET, PublicationWorld, orders

IN_FLIGHT: Final = "in flight"
_MOMENT_SECONDS: Final = 0.003


class HastyTopic(KafkaMetadataTopic):
    """Once `is_dying`, it gives the next record to the client, which begins to send it, and dies."""

    is_dying = False

    def append(self, partition: int, value: bytes) -> int:
        if self.is_dying:
            producer = self._writer()
            producer.produce(METADATA_TOPIC, value=value, partition=partition)
            producer.poll(0)
            time.sleep(_MOMENT_SECONDS)
            die()
        return super().append(partition, value)


class KillAt:
    def __init__(self, step: str | None, number: int, topic: object) -> None:
        self._point = (step, number)
        self._topic = topic

    def __call__(self, step: PublishStep, _partition: TopicIdPartition, number: int) -> None:
        if (step, number) == self._point:
            die()
        if isinstance(self._topic, HastyTopic) and (IN_FLIGHT, number) == self._point:
            self._topic.is_dying = True


@contextmanager
def open_topic(place: str) -> Iterator[FileMetadataTopic | HastyTopic]:
    if Path(place).is_dir():
        yield FileMetadataTopic(Path(place))
        return
    with HastyTopic(client_configuration(place)) as topic:
        yield topic


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("partition", type=int)
    parser.add_argument("--database", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--log-start-offset", type=int, default=LOG_START_OFFSET)
    parser.add_argument("--settle-ms", type=int, default=0)
    parser.add_argument("--kill-at")
    parser.add_argument("--number", type=int, default=0)
    arguments = parser.parse_args()
    partition = orders(arguments.partition)
    engine = open_engine(arguments.database)
    with open_topic(arguments.topic) as topic:
        observe = KillAt(arguments.kill_at, arguments.number, topic)
        publisher = PublicationWorld(engine).publisher(
            topic, SystemClock(), observe=observe, settle_ms=arguments.settle_ms
        )
        publisher.publish(partition, log_start_offset=arguments.log_start_offset, run_id="run", batch_id="batch")
    engine.dispose()


if __name__ == "__main__":
    main()
