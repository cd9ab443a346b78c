"""One process that uploads under the quotas of its deployment; its last words are its own account as JSON.

    python -m benchmarks.quota_worker busy SEGMENT_BYTES    one segment after another
    python -m benchmarks.quota_worker idle                  one small object, then nothing
    python -m benchmarks.quota_worker slow RATE             small objects, RATE bytes a second in all
    python -m benchmarks.quota_worker take                  asks for block after block, sends nothing
    [--broker-id 1] [--topic bench] [--client NAME]

Settings come from the environment, quotas and the S3 adapter from the product's own wiring: nothing here paces. Says
`ready` when it could send at once, sends from the line `begin` on standard input to the line `stop` or its end. What
was charged is counted at the limiter; the last object is given up in the middle, its last grant sent.
"""

import argparse
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Engine, event

from benchmarks.copy_once import cpu_seconds, tell
from include.tiering.app import open_app
from include.tiering.errors import SendingStoppedError
from include.tiering.formats.record_batch import append_crc32c, extend_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from include.tiering.quotas.contract import ByteLimiter, GoOn, Scope
from include.tiering.quotas.shared_quotas import SqlLedgerStore
from include.tiering.quotas.shares import LedgerRow
from include.tiering.remote_storage.location import S3Location, parse_location
from include.tiering.remote_storage.object_store import BLOCK_BYTES
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.settings import TieringSettings, load_settings
from include.tiering.units import KIB, MIB

IDLE_BYTES: Final = 4 * KIB
SLOW_PERIOD_S: Final = 0.1


class RepeatedBlock:
    """A `ByteSource` of any size in the memory of 1 MiB, with the checksums that an upload is told."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._block = memoryview(os.urandom(MIB) * 2)
        self.running_crc32c = list(self._running_crc32c())

    @property
    def crc32c(self) -> int:
        return self.running_crc32c[-1]

    def read_into(self, position: int, buffer: memoryview) -> int:
        size_bytes = min(len(buffer), self.size_bytes - position, MIB)
        first = position % MIB
        buffer[:size_bytes] = self._block[first : first + size_bytes]
        return size_bytes

    def _running_crc32c(self) -> Iterator[int]:
        """Of the first step, of the first two, and last of all of it."""
        block_crc32c = extend_crc32c(0, self._block[:MIB])
        crc32c = 0
        for end in range(MIB, self.size_bytes + 1, MIB):
            crc32c = append_crc32c(crc32c, block_crc32c, MIB)
            if end % RUNNING_CRC32C_STEP_BYTES == 0:
                yield crc32c
        if rest_bytes := self.size_bytes % MIB:
            crc32c = append_crc32c(crc32c, extend_crc32c(0, self._block[:rest_bytes]), rest_bytes)
        if self.size_bytes % RUNNING_CRC32C_STEP_BYTES:
            yield crc32c


@dataclass
class CountingLimiter:
    """What a limiter charged, and the longest it made its caller wait. It calls `go_on` before every grant."""

    limiter: ByteLimiter
    go_on: GoOn = lambda: None
    charged_bytes: int = 0
    longest_wait_s: float = 0.0

    @property
    def waited_seconds(self) -> float:
        return self.limiter.waited_seconds

    @property
    def waits_for(self) -> Scope | None:
        return self.limiter.waits_for

    def take(self, wanted_bytes: int) -> int:
        self.go_on()
        begun_s = time.monotonic()
        granted_bytes = self.limiter.take(wanted_bytes)
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - begun_s)
        self.charged_bytes += granted_bytes
        return granted_bytes


@dataclass
class Sender:
    """`body` is what its mode sends again and again."""

    store: S3ObjectStore
    limiter: CountingLimiter
    stopped: threading.Event
    body: RepeatedBlock
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def busy(self) -> None:
        while True:
            self._put()

    def idle(self) -> None:
        self._put()
        self.stopped.wait()

    def slow(self) -> None:
        begun_s = time.monotonic()
        for number in itertools.count(1):
            self._put()
            if self.stopped.wait(begun_s + number * SLOW_PERIOD_S - time.monotonic()):
                return

    def take(self) -> None:
        while True:
            self.limiter.take(BLOCK_BYTES)

    def _put(self) -> None:
        self.store.put(
            f"{os.getpid()}-{next(self._numbers)}",
            self.body,
            self.body.crc32c,
            limiter=self.limiter,
            on_sent=lambda _: None,
            running_crc32c=self.body.running_crc32c,
        )


def body_bytes(mode: str, amount: int) -> int:
    """Segments of busy; of slow the part of its rate that falls to one period."""
    return {"busy": amount, "slow": round(amount * SLOW_PERIOD_S)}.get(mode, IDLE_BYTES)


def s3_store(settings: TieringSettings) -> S3ObjectStore:
    location = parse_location(settings.remote_storage.required_url())
    if not isinstance(location, S3Location):
        raise TypeError("this worker sends to S3")
    return S3ObjectStore(location.bucket, location.prefix, endpoint_url=settings.remote_storage.endpoint_url)


@contextmanager
def counted_statements() -> Iterator[list[float]]:
    """Seconds of every SQL statement of this process; the begin of a transaction, which SQLite alone tells, is none."""
    seconds: list[float] = []

    def before(*_: object) -> None:
        begun.at_s = time.monotonic()

    def after(connection: object, cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            seconds.append(time.monotonic() - begun.at_s)

    begun = threading.local()
    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "after_cursor_execute", after)
    try:
        yield seconds
    finally:
        event.remove(Engine, "before_cursor_execute", before)
        event.remove(Engine, "after_cursor_execute", after)


@contextmanager
def timed_rounds() -> Iterator[list[float]]:
    """Seconds of every exchange with the ledger of this process."""
    seconds: list[float] = []
    exchange = SqlLedgerStore.exchange

    def timed(ledger: SqlLedgerStore, change: Callable[[LedgerRow], LedgerRow]) -> LedgerRow:
        begun_s = time.monotonic()
        try:
            return exchange(ledger, change)
        finally:
            seconds.append(time.monotonic() - begun_s)

    setattr(SqlLedgerStore, "exchange", timed)  # noqa: B010
    try:
        yield seconds
    finally:
        setattr(SqlLedgerStore, "exchange", exchange)  # noqa: B010


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Upload under quotas until told to stop.")
    parser.add_argument("mode", choices=("busy", "idle", "slow", "take"))
    parser.add_argument("amount", type=int, nargs="?", default=0, help="segment bytes of busy, bytes a second of slow")
    parser.add_argument("--broker-id", type=int, default=1)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--client", help="charge what is sent as fetches of this client, not as copies")
    options = parser.parse_args(arguments)
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise SendingStoppedError("the benchmark is over")

    settings = load_settings()
    # Listening begins before the first round does: a thread of the library is never met in the middle of a statement.
    with counted_statements() as statement_seconds, timed_rounds() as round_seconds, open_app(settings) as app:
        quotas = app.adapters.quotas
        if options.client is None:
            limiter = CountingLimiter(quotas.copy(options.broker_id, options.topic, go_on=go_on))
        else:
            limiter = CountingLimiter(quotas.fetch(options.broker_id, options.topic, options.client), go_on)
        sender = Sender(s3_store(settings), limiter, stopped, RepeatedBlock(body_bytes(options.mode, options.amount)))
        sender.store.stat("warm-up")
        tell({"ready": os.getpid()})
        sys.stdin.readline()
        statement_seconds.clear()
        round_seconds.clear()
        begun_s, cpu_before_s = time.monotonic(), cpu_seconds()

        def wait_for_stop() -> None:
            sys.stdin.readline()
            stopped.set()

        threading.Thread(target=wait_for_stop, daemon=True).start()
        with suppress(SendingStoppedError):
            getattr(sender, options.mode)()
        account = {
            "mode": options.mode,
            "charged_bytes": limiter.charged_bytes,
            "seconds": time.monotonic() - begun_s,
            "cpu_seconds": cpu_seconds() - cpu_before_s,
            "longest_wait_s": limiter.longest_wait_s,
            "waited_s": limiter.waited_seconds,
            "round_seconds": [round(seconds, 6) for seconds in round_seconds],
            "statement_seconds": [round(seconds, 6) for seconds in statement_seconds],
        }
    sys.stdout.write(json.dumps(account) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
