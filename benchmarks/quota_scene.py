"""A deployment to watch: a sink, a ledger in a database of its own, and worker processes that share its quotas."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypedDict
from unittest.mock import patch
from urllib.request import Request, urlopen

from benchmarks.bench_upload import BUCKET, sink
from benchmarks.quota_trace import Trace
from include.tiering.app import App, open_app
from include.tiering.configs.config_catalogue import (
    COPY_QUOTA,
    NARROW_COPY_QUOTA,
    NARROW_FETCH_QUOTA,
    TOTAL_COPY_QUOTA,
    TOTAL_FETCH_QUOTA,
)
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.service import AlteredConfigs
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.model.segments import Uuid
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.remote_storage.location import place_of
from include.tiering.settings import load_settings
from tests.doubles.s3_server import CREDENTIALS

TOTAL: Final = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)
EACH_BROKER: Final = Scope(QuotaKind.COPY, QuotaLevel.BROKER)
TOTAL_FETCH: Final = Scope(QuotaKind.FETCH, QuotaLevel.TOTAL)
_NAMES: Final = {TOTAL: TOTAL_COPY_QUOTA, EACH_BROKER: COPY_QUOTA, TOTAL_FETCH: TOTAL_FETCH_QUOTA}
_NARROW: Final = {
    (QuotaKind.COPY, QuotaLevel.BROKER): (EntityType.BROKERS, COPY_QUOTA),
    (QuotaKind.COPY, QuotaLevel.TOPIC): (EntityType.TOPICS, NARROW_COPY_QUOTA),
    (QuotaKind.FETCH, QuotaLevel.CLIENT): (EntityType.CLIENTS, NARROW_FETCH_QUOTA),
}
_COMMAND: Final = Path(__file__).resolve().parents[1] / "tiering"
_ENDS_WITHIN_S: Final = 120.0
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


class Account(TypedDict):
    """What a worker says of itself when it ends; see `quota_worker`."""

    mode: str
    charged_bytes: int
    seconds: float
    cpu_seconds: float
    longest_wait_s: float
    waited_s: float
    round_seconds: list[float]
    statement_seconds: list[float]


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that works between two words of this one, such as `quota_worker`."""

    process: subprocess.Popen[str]
    errors: Path

    @classmethod
    def started(cls, command: Sequence[str], environment: Mapping[str, str], errors: Path) -> "Worker":
        """A process with these variables beside those of this process; its standard error goes to `errors`."""
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        return cls(process, errors)

    def begin(self) -> None:
        self._say("begin")

    def stop(self) -> None:
        self._say("stop")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def close(self) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.kill()
        self.process.communicate()

    def account(self) -> Account:
        """Its own figures, once it was told to stop. Raises RuntimeError if it failed."""
        words, _ = self.process.communicate(timeout=_ENDS_WITHIN_S)
        if self.process.returncode:
            raise RuntimeError(f"worker {self.process.pid} failed: {self.errors.read_text()[-500:]}")
        account: Account = json.loads(words)
        return account

    def await_ready(self) -> None:
        """Raises RuntimeError if the process ended instead."""
        if self.process.stdout is None or not self.process.stdout.readline():
            last_words = self.errors.read_text()[-500:]
            raise RuntimeError(f"worker {self.process.pid} did not start ({self.process.wait()}): {last_words}")

    def _say(self, word: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()


class Scene:
    """Use `scene`. Times are seconds of this host's monotonic clock, as are those of traces."""

    def __init__(self, endpoint_url: str, app: App, environment: Mapping[str, str], directory: Path) -> None:
        self.endpoint_url = endpoint_url
        self.app = app
        self._environment = environment
        self._directory = directory
        self._workers: list[Worker] = []

    def start(
        self,
        count: int,
        mode: str,
        *amount: int,
        broker_id: int = 1,
        topic: str = "bench",
        client: str | None = None,
    ) -> tuple[Worker, ...]:
        """Workers that are ready to begin. What those with a client send is charged as what this client fetches."""
        command = [sys.executable, "-m", "benchmarks.quota_worker", mode, *map(str, amount)]
        command += ["--broker-id", str(broker_id), "--topic", topic]
        command += [] if client is None else ["--client", client]
        workers = tuple(self._started(command) for _ in range(count))
        self._workers += workers
        for worker in workers:
            worker.await_ready()
        return workers

    def _started(self, command: Sequence[str]) -> Worker:
        errors = self._directory / f"{len(list(self._directory.iterdir()))}.stderr"
        return Worker.started(command, self._environment, errors)

    def alter_quotas(self, bytes_per_second: Mapping[Scope, int]) -> AlteredConfigs:
        """Put exactly these in force; `not_taken_by` tells which workers were too slow for the command's patience."""
        return self.app.configs.alter(ALL_BROKERS, _changes(bytes_per_second), author="benchmark")

    def set_quotas(self, bytes_per_second: Mapping[Scope, int]) -> float:
        """Put exactly these in force; returns when every running worker had taken them."""
        altered = self.alter_quotas(bytes_per_second)
        if altered.not_taken_by:
            raise TimeoutError(f"{len(altered.not_taken_by)} workers did not take {bytes_per_second}")
        return time.monotonic()

    def set_narrow_quota(self, scope: Scope, bytes_per_second: int | None) -> None:
        """Put a quota of one broker, topic or client in force; None removes it."""
        entity_type, name = _NARROW[scope.kind, scope.level]
        value = None if bytes_per_second is None else str(bytes_per_second)
        self.app.configs.alter(ConfigEntity(entity_type, scope.name), {name: value}, author="benchmark")

    def set_quotas_by_command(self, bytes_per_second: Mapping[Scope, int]) -> float:
        """The same by `./tiering configs`, its start included; quotas that are not named stay."""
        added = ",".join(f"{_NAMES[scope]}={quota}" for scope, quota in bytes_per_second.items())
        subprocess.run(
            [_COMMAND, "configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", added],
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
            check=True,
        )
        return time.monotonic()

    def trace(self) -> Trace:
        with urlopen(f"{self.endpoint_url}/.arrivals") as answer:  # noqa: S310
            return Trace.from_json(json.load(answer))

    def forget(self) -> None:
        """Begin a new trace."""
        urlopen(Request(f"{self.endpoint_url}/.arrivals", method="DELETE")).close()  # noqa: S310

    def close(self) -> None:
        """End every worker that still runs."""
        for worker in self._workers:
            worker.close()


@contextmanager
def scene(metadata_url: str) -> Iterator[Scene]:
    """Everything set up in this database, which must be empty; ended and removed, the database apart."""
    engine = open_engine(metadata_url)
    upgrade(engine)
    StoreIdentities(engine, CLUSTER_ID).create(
        Uuid.random(os.urandom), place=place_of(f"s3://{BUCKET}/quota", "aiven", "")
    )
    engine.dispose()
    with ExitStack() as stack:
        endpoint_url, _ = stack.enter_context(sink())
        environment = {
            **CREDENTIALS,
            "TIERING_METADATA__URL": metadata_url,
            "TIERING_REMOTE_STORAGE__URL": f"s3://{BUCKET}/quota",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": endpoint_url,
        }
        # This process changes quotas, and a change claims the store.
        stack.enter_context(patch.dict(os.environ, CREDENTIALS))
        app = stack.enter_context(open_app(load_settings(environ=environment)))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="quota-scene-")))
        opened = Scene(endpoint_url, app, environment, directory)
        stack.callback(opened.close)
        yield opened


def begin(workers: Sequence[Worker]) -> float:
    """Let all work at once; returns when."""
    begun_s = time.monotonic()
    for worker in workers:
        worker.begin()
    return begun_s


def end(workers: Sequence[Worker]) -> list[Account]:
    """Stop all; what each did."""
    for worker in workers:
        worker.stop()
    return [worker.account() for worker in workers]


def summary(accounts: Sequence[Account]) -> dict[str, Any]:
    return {
        "charged_bytes": sum(account["charged_bytes"] for account in accounts),
        "worker_cpu_seconds": round(sum(account["cpu_seconds"] for account in accounts), 2),
        "longest_wait_s": round(max((account["longest_wait_s"] for account in accounts), default=0.0), 3),
    }


def _changes(bytes_per_second: Mapping[Scope, int]) -> dict[str, str | None]:
    quotas = {scope: bytes_per_second.get(scope) for scope in _NAMES}
    return {_NAMES[scope]: None if quota is None else str(quota) for scope, quota in quotas.items()}
