"""A producer of its own process: a steady rate for some seconds, and how long the broker took to acknowledge.

    python -m benchmarks.producer_load BOOTSTRAP TOPIC --rate 500 --seconds 40

Latency is from the call until the acknowledgement of all in-sync replicas is delivered, in milliseconds. The records
of the first seconds count for nothing. Prints JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

RECORD_BYTES: Final = 1_000
WARM_UP_SECONDS: Final = 3.0


def load(bootstrap: str, topic: str, *, rate: float, seconds: float) -> dict[str, float]:
    """Raises RuntimeError if a record was refused."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1, "log_level": 2}
    )
    latencies_s: list[float] = []
    value = bytes(np.random.default_rng(1).integers(0, 256, RECORD_BYTES, dtype=np.uint8))
    begun = time.monotonic()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record was refused: {error}")
        if time.monotonic() - begun > WARM_UP_SECONDS:
            latencies_s.append(float(message.latency() or 0.0))

    count = int(rate * (seconds + WARM_UP_SECONDS))
    for number in range(count):
        due = begun + number / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(min(left, 0.01))
        producer.produce(topic, value, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged within 60 s")
    lasted = time.monotonic() - begun
    in_ms = np.array(latencies_s) * 1000
    quantiles = {f"p{name}_ms": round(float(np.percentile(in_ms, name)), 3) for name in (50, 95, 99)}
    # Records are late when the machine, not the broker, is too busy.
    return {
        "records": len(in_ms),
        **quantiles,
        "max_ms": round(float(in_ms.max()), 3),
        "rate": round(count / lasted, 1),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Produce at a steady rate; prints JSON.")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args(arguments)
    print(json.dumps(load(options.bootstrap, options.topic, rate=options.rate, seconds=options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
