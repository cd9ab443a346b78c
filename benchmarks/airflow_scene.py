"""A platform to watch: real scheduler, triggerer, DAG processor and API server, a generated log dir, a sink.

Everything of it lies below one directory and is ended with the context. Times are seconds of this host's monotonic
clock, as are those of the sink's trace.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.bench_upload import BUCKET, sink
from benchmarks.generated_log_dir import TOPIC, Shape, write_log_dir
from benchmarks.quota_trace import Trace
from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.settings import load_settings
from local import processes
from local.assembly import assemble
from local.layout import ROOT, Layout
from local.platform import stop
from local.ports import free_port
from local.runs import trigger, wait_for_dag
from local.secrets_store import ADMIN, password_of
from plugins.tiering_airflow.errors import AirflowApiError
from tests.doubles.s3_server import CREDENTIALS

COPY_DAG: Final = "tiering_copy"
CONFIGS_DAG: Final = "tiering_configs"
SIZES_DAG: Final = "tiering_remote_log_sizes"
_DAG_SECONDS: Final = 90.0
_FORM_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_SAMPLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """A quota that was changed. `begun_s`: the command began; the form's task began to run.

    `returned_s`: the command returned; the form's task succeeded. `taken_s`: the ledger said that every running worker
    has the new quota.
    """

    quota: int
    begun_s: float
    taken_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the pool: batches that say they hold a slot, tasks that Airflow runs, and the mirrored size."""

    at_s: float
    live_batches: tuple[str, ...]
    running_tasks: int
    mirrored_slots: int | None


@dataclass(frozen=True, slots=True)
class AirflowScene:
    """Use `airflow_scene`."""

    layout: Layout
    environment: Mapping[str, str]
    endpoint_url: str
    ask_sink: Callable[[str], list[int]]
    app: App
    api: AirflowApi

    def configs(self, *arguments: str) -> None:
        """`./tiering configs --alter` of the brokers' default, to its return. Raises CalledProcessError."""
        command = [str(ROOT / "tiering"), "configs", "--alter", "--entity-type", "brokers", "--entity-default"]
        subprocess.run(
            [*command, *arguments], env={**os.environ, **self.environment}, stdout=subprocess.PIPE, check=True
        )

    def change_by_command(self, quota: int) -> Change:
        begun_s = time.monotonic()
        with _TakenWatch(self.app) as watch:
            self.configs("--add-config", f"{TOTAL_COPY_QUOTA}={quota}")
            returned_s = time.monotonic()
        return Change(quota, begun_s, watch.taken_s(default=returned_s), returned_s)

    def change_by_form(self, quota: int) -> Change:
        """Trigger `tiering_configs` as its form does. Raises RuntimeError if its task fails."""
        form = {"entity_type": "brokers", "entity_default": True, "name": TOTAL_COPY_QUOTA, "value": str(quota)}
        with _TakenWatch(self.app) as watch:
            run_id = trigger(self.api, CONFIGS_DAG, form)
            task = self._await_end(f"/dags/{CONFIGS_DAG}/dagRuns/{run_id}/taskInstances/alter")
        returned_s = _monotonic(task["end_date"])
        return Change(quota, _monotonic(task["start_date"]), watch.taken_s(default=returned_s), returned_s)

    def resize_pool(self, slots: int) -> float:
        """Through Airflow's REST API; returns when."""
        body = {"pool": COPIER_POOL, "slots": slots, "include_deferred": False}
        self.api.patch(f"/pools/{COPIER_POOL}", body)
        return time.monotonic()

    def trace(self) -> Trace:
        return Trace.from_json(httpx.get(f"{self.endpoint_url}/.arrivals").json())

    def forget(self) -> None:
        """Begin a new trace."""
        httpx.delete(f"{self.endpoint_url}/.arrivals").raise_for_status()

    def running_copies(self, run_id: str) -> int:
        """Mapped batches that Airflow runs now."""
        found = self.api.get(f"/dags/{COPY_DAG}/dagRuns/{run_id}/taskInstances", limit="100")["task_instances"]
        return sum(task["task_id"] == "copy" and task["state"] == "running" for task in found)

    def _await_end(self, path: str) -> dict[str, Any]:
        deadline = time.monotonic() + _FORM_SECONDS
        while time.monotonic() < deadline:
            task = dict(self.api.get(path))
            if task["state"] == "success":
                return task
            if task["state"] in ("failed", "upstream_failed", "up_for_retry"):
                break
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"{path} did not succeed: {task['state']}")


class PoolWatch:
    """Samples once a second while its context lasts."""

    def __init__(self, scene: AirflowScene, run_id: str) -> None:
        self.samples: list[Sample] = []
        self._scene = scene
        self._run_id = run_id
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pool-watch", daemon=True)

    def __enter__(self) -> "PoolWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def wait_for(self, reached: Callable[[Sample], bool], *, seconds: float, what: str) -> float:
        """Monotonic second of the first new sample that satisfies. Raises TimeoutError."""
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + seconds:
            for sample in [sample for sample in self.samples if sample.at_s >= begun_s]:
                if reached(sample):
                    return sample.at_s
            time.sleep(_POLL_SECONDS)
        last = self.samples[-1] if self.samples else "no sample"
        raise TimeoutError(f"not within {seconds:.0f} s: {what}; last seen: {last}")

    def _run(self) -> None:
        work = self._scene.app.adapters.stores.work
        while not self._closing.wait(_SAMPLE_SECONDS):
            try:
                running_tasks = self._scene.running_copies(self._run_id)
            except AirflowApiError:
                continue
            live = tuple(work.live_batches(COPIER_POOL))
            self.samples.append(Sample(time.monotonic(), live, running_tasks, work.pool_size(COPIER_POOL)))


@dataclass(slots=True)
class _TakenWatch:
    """Looks at the ledger until every running worker has taken quotas that are newer than at its begin."""

    app: App
    _taken_s: float | None = None
    _version: int = 0
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "_TakenWatch":
        self._version = self.app.adapters.quota_ledger.in_force().version
        self._thread = threading.Thread(target=self._run, name="taken-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def taken_s(self, *, default: float) -> float:
        return self._taken_s if self._taken_s is not None else default

    def _run(self) -> None:
        ledger = self.app.adapters.quota_ledger
        while not self._closing.wait(_POLL_SECONDS):
            version = ledger.in_force().version
            if version > self._version and all(worker.version >= version for worker in ledger.workers()):
                self._taken_s = time.monotonic()
                return


@contextmanager
def airflow_scene(
    directory: Path, shape: Shape, *, max_batches: int, say: Callable[[str], None]
) -> Iterator[AirflowScene]:
    """Started and healthy, with a log dir of `shape` to copy; both DAGs are known. All of it ended afterwards.

    Raises:
        RuntimeError: it did not start, or a process of it outlived its end.
    """
    layout = Layout.below(directory)
    write_log_dir(layout.sample_log_dirs / "broker-1", shape)
    with ExitStack() as stack:
        endpoint_url, ask_sink = stack.enter_context(sink())
        environment = {
            **CREDENTIALS,
            "TIERING_LOG_DIRS": f"1:{layout.sample_log_dirs / 'broker-1'}",
            "TIERING_TOPICS__INCLUDE": TOPIC,
            "TIERING_METADATA__URL": f"sqlite:///{layout.metadata_database}",
            "TIERING_REMOTE_STORAGE__URL": f"s3://{BUCKET}/airflow",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": endpoint_url,
            "TIERING_COPIER__MAX__BATCHES": str(max_batches),
        }
        platform = assemble(layout, environment, port=free_port(), say=say)
        stack.callback(_end, layout, say)
        platform.set_up()
        platform.start()
        api = stack.enter_context(AirflowApi(platform.base_url, Login(ADMIN, password_of(layout, ADMIN))))
        for dag_id in (COPY_DAG, CONFIGS_DAG):
            wait_for_dag(api, dag_id, seconds=_DAG_SECONDS)
        app = stack.enter_context(open_app(load_settings(environ=environment)))
        yield AirflowScene(layout, environment, endpoint_url, ask_sink, app, api)


def left_processes(layout: Layout) -> Sequence[str]:
    """Command lines of what still runs of a platform that was ended."""
    return [" ".join(process.cmdline()) for process in processes.family([], str(layout.airflow_home))]


def _end(layout: Layout, say: Callable[[str], None]) -> None:
    stop(layout, say)
    left = left_processes(layout)
    if left:
        raise RuntimeError(f"{len(left)} processes outlived the platform: {left}")


def _monotonic(date: str) -> float:
    """Of a moment as Airflow writes it: both clocks are this host's."""
    return time.monotonic() - (time.time() - datetime.fromisoformat(date).timestamp())
