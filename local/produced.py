"""Records on the broker of a demonstration: topics whose segments roll soon, and a broker that has flushed them."""

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.units import KIB
from local.platform import PlatformError

TOPICS: Final = {"orders": 2, "payments": 1}
"""Partitions of each topic of the demonstration."""
_SEGMENT_BYTES: Final = 64 * KIB
RECORDS: Final = 1_500
"""Records of each partition in the demonstration: five segments, and the active one."""
_VALUE_BYTES: Final = 200
_SECONDS: Final = 120.0
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"


def produce(bootstrap_servers: str, log_dir: Path, topics: Mapping[str, int] = TOPICS, records: int = RECORDS) -> None:
    """Create the topics, fill them, and wait until rolled segments are flushed: before that none may be copied.

    Args:
        bootstrap_servers: the broker's address.
        log_dir: the broker's log directory.
        topics: the number of partitions of each topic.
        records: how many each partition gets, of about 200 bytes.

    Raises:
        PlatformError: the broker does not answer, or has not flushed within two minutes.
    """
    # A topic refuses a `segment.bytes` below a mebibyte, but not this config of Kafka's own tests.
    config = {"retention.ms": "-1", "internal.segment.bytes": str(_SEGMENT_BYTES)}
    fill(bootstrap_servers, topics, records, value_bytes=_VALUE_BYTES, config=config, batch_bytes=8 * KIB)
    _wait_until_flushed(log_dir, topics)


def fill(
    bootstrap_servers: str,
    topics: Mapping[str, int],
    records: int,
    *,
    value_bytes: int,
    config: Mapping[str, str],
    batch_bytes: int,
) -> None:
    """Create the topics, and fill their partitions; values are the same in each run.

    Args:
        bootstrap_servers: the broker's address.
        topics: the number of partitions of each topic.
        records: how many each partition gets.
        value_bytes: the size of each value.
        config: the configs of each topic.
        batch_bytes: how large the producer makes its batches.

    Raises:
        PlatformError: the broker does not answer within two minutes.
    """
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers, "log_level": 2}
    new = [NewTopic(name, partitions, 1, config=dict(config)) for name, partitions in topics.items()]
    # An answer is lost with the client that asked.
    admin = AdminClient(client)
    try:
        for created in admin.create_topics(new).values():
            created.result(_SECONDS)
    except KafkaException as error:
        raise PlatformError(f"the broker at {bootstrap_servers} did not create the topics: {error}") from error
    producer = Producer({**client, "acks": "all", "enable.idempotence": True, "batch.size": batch_bytes})
    contents = random.Random(1)  # noqa: S311
    for name, partitions in topics.items():
        for number in range(records):
            for partition in range(partitions):
                producer.produce(name, contents.randbytes(value_bytes), str(number).encode(), partition)
            producer.poll(0)
    if left := producer.flush(_SECONDS):
        raise PlatformError(f"{left} records were not delivered within {_SECONDS:.0f} s")


def _wait_until_flushed(log_dir: Path, topics: Mapping[str, int]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not _is_flushed(log_dir, topics):
        if time.monotonic() > deadline:
            raise PlatformError(f"the broker has not flushed what rolled in {log_dir} within {_SECONDS:.0f} s")
        time.sleep(0.5)


def _is_flushed(log_dir: Path, topics: Mapping[str, int]) -> bool:
    """Return whether the recovery point of each partition has reached its active segment."""
    points = parse_offset_checkpoint((log_dir / _RECOVERY_POINTS).read_bytes())
    return all(
        points.get((name, partition), 0)
        >= max(int(log.stem) for log in (log_dir / f"{name}-{partition}").glob("*.log"))
        for name, partitions in topics.items()
        for partition in range(partitions)
    )
