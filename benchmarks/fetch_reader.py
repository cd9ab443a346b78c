"""One process that reads stored logs under the fetch quotas; its last words are what came when, as JSON.

    python -m benchmarks.fetch_reader stream [--client NAME]    one log after another, as a scan or a restore
    python -m benchmarks.fetch_reader ask [--client NAME]       fetches of 1 MiB, again at once if one is refused

Settings come from the environment; quotas, storage and readers from the product's own wiring: nothing here paces. Says
`ready` when it could read at once, reads from the line `begin` on standard input to the line `stop` or its end. Bytes
are counted in the process, when the store has given them: what a socket holds was sent before anybody asked.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle

from benchmarks.copy_once import tell
from benchmarks.quota_trace import bucket_of
from include.tiering.app import App, open_app
from include.tiering.errors import SendingStoppedError
from include.tiering.reading.fetch import PartitionFetch
from include.tiering.settings import load_settings
from include.tiering.units import MIB


class Reader:
    """Reads all that is stored, again and again, until it is stopped. `refused` counts answers without records."""

    def __init__(self, app: App, client: str, stopped: threading.Event) -> None:
        metadata = app.adapters.stores.metadata
        self.refused = 0
        self.counts: Counter[int] = Counter()
        self._app = app
        self._client = client
        self._stopped = stopped
        self._segments = [row.metadata for one in metadata.partitions() for row in metadata.list_segments(one)]

    def stream(self) -> None:
        quotas, storage = self._app.adapters.quotas, self._app.adapters.storage
        for segment in cycle(self._segments):
            topic = segment.topic_id_partition.topic
            limiter = quotas.fetch(segment.broker_id, topic, self._client, go_on=self._go_on)
            for block in storage.fetch_log_segment(segment, limiter=limiter):
                self._got(len(block))

    def ask(self) -> None:
        with self._app.reading.record_readers() as readers:
            for segment in cycle(self._segments):
                offset = segment.start_offset
                while offset <= segment.end_offset:
                    self._go_on()
                    fetch = PartitionFetch(segment.topic_id_partition, offset, MIB)
                    (answer,) = readers.fetch([fetch], self._client)
                    if answer.error is not None:
                        raise answer.error
                    self.refused += not answer.records
                    self._got(len(answer.records))
                    offset = answer.next_offset

    def _got(self, size_bytes: int) -> None:
        self.counts[bucket_of(time.monotonic())] += size_bytes

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise SendingStoppedError("the benchmark is over")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Read under quotas until told to stop.")
    parser.add_argument("mode", choices=("stream", "ask"))
    parser.add_argument("--client", default="")
    options = parser.parse_args(arguments)
    stopped = threading.Event()
    with open_app(load_settings()) as app:
        reader = Reader(app, options.client, stopped)
        app.adapters.quotas.fetch(1, "warm-up", options.client).take(1)
        tell({"ready": os.getpid()})
        sys.stdin.readline()

        def wait_for_stop() -> None:
            sys.stdin.readline()
            stopped.set()

        threading.Thread(target=wait_for_stop, daemon=True).start()
        with suppress(SendingStoppedError):
            getattr(reader, options.mode)()
    first = min(reader.counts, default=0)
    counts = [reader.counts[bucket] for bucket in range(first, max(reader.counts, default=first - 1) + 1)]
    account = {"first_bucket": first, "counts": counts, "refused": reader.refused}
    sys.stdout.write(json.dumps(account) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
