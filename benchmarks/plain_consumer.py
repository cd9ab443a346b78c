"""A plain consumer in a process of its own: librdkafka at its defaults, which reads the bytes and keeps nothing.

    python -m benchmarks.plain_consumer BOOTSTRAP TOPIC END...     the end (exclusive) of each partition, by its number

Counted from the assignment of the partitions, of which all are read from offset 0 on, to the last record; client and
metadata are made before. Prints JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.copy_once import account, cpu_seconds

_AT_ONCE: Final = 100
_LOOK_SECONDS: Final = 0.02
"""`consume` returns fewer records only after this time: so much may be lost at the end."""
_WAIT_SECONDS: Final = 60.0


def consume(bootstrap: str, topic: str, ends: Sequence[int]) -> dict[str, object]:
    """Read all of these offsets. Raises RuntimeError if no record comes for a minute."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "plain", "enable.auto.commit": False, "log_level": 2}
    )
    try:
        consumer.list_topics(topic, timeout=_WAIT_SECONDS)
        begun, before = time.monotonic(), cpu_seconds()
        last = begun
        left, value_bytes = {partition for partition, end in enumerate(ends) if end}, 0
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            messages = consumer.consume(_AT_ONCE, _LOOK_SECONDS)
            last = time.monotonic() if messages else last
            if time.monotonic() - last > _WAIT_SECONDS:
                raise RuntimeError(f"no record within {_WAIT_SECONDS:.0f} s, and partitions {sorted(left)} have more")
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if offset < ends[partition]:
                    value_bytes += len(message)
                if offset + 1 == ends[partition]:
                    left.discard(partition)
                    consumer.pause([TopicPartition(topic, partition)])
        after, ended = cpu_seconds(), time.monotonic()
    finally:
        consumer.close()
    return {"value_bytes": value_bytes, **account(begun, before, ended, after)}


if __name__ == "__main__":
    bootstrap, topic, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(consume(bootstrap, topic, [int(number) for number in numbers])) + "\n")
