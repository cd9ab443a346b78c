"""One local platform: start its components, wait until they are healthy, stop all its processes."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil

from local import processes
from local.layout import VIRTUAL_ENVIRONMENT, Layout
from local.ports import LOOPBACK

COMPONENTS: Final[Mapping[str, Sequence[str]]] = {
    "api-server": ("api-server",),
    # Logs are read from disk on one machine; the log servers would listen on every address.
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
METRICS: Final = "metrics"
"""The component that serves the metrics; it is no part of Airflow."""
_HEALTH_PARTS: Final = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_START_SECONDS: Final = 300.0
_TASKS_END_SECONDS: Final = 5.0
_COMPONENTS_END_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.5


class PlatformError(RuntimeError):
    """The local platform, its brokers or a DAG run failed, or was not ready in time; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform whose airflow.cfg was written before. `say` is called with one line before each wait.

    If the metrics component does not run yet, `start` lets it listen on `metrics_port` of the loopback address.
    """

    layout: Layout
    environment: Mapping[str, str]
    base_url: str
    metrics_port: int
    say: Callable[[str], None]

    def set_up(self) -> None:
        """Create or migrate the databases of Airflow and of the platform. Raises PlatformError if that fails."""
        self.say("waiting for the databases to be created or brought up to date (about 15 s the first time)")
        log = self.layout.component_logs / "set-up.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            command = [str(VIRTUAL_ENVIRONMENT / "bin" / "python"), "-m", "local.set_up"]
            done = subprocess.run(
                command, env=dict(self.environment), stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            raise PlatformError(f"set-up failed, its last lines ({log}):\n{last_lines(log)}")

    def start(self) -> None:
        """Start components that do not run yet, and wait until all are healthy.

        Raises:
            PlatformError: a component ended, or is not healthy in time.
        """
        running = processes.recorded(self.layout.components)
        for name, arguments in COMPONENTS.items():
            if name not in running:
                running[name] = processes.start(
                    name,
                    [str(VIRTUAL_ENVIRONMENT / "bin" / "airflow"), *arguments],
                    environment=self.environment,
                    log=self._log(name),
                    pid_files=self.layout.components,
                )
        if METRICS not in running:
            running[METRICS] = self._start_metrics()
        self.say(f"waiting for Airflow's {', '.join(COMPONENTS)} to be healthy at {self.base_url} (about 20 s)")
        self._wait_healthy(running)

    def _start_metrics(self) -> psutil.Process:
        address = f"{LOOPBACK}:{self.metrics_port}"
        self.layout.metrics_address.write_text(address)
        python = str(VIRTUAL_ENVIRONMENT / "bin" / "python")
        return processes.start(
            METRICS,
            [python, "-m", "include.tiering.cli", "metrics", "serve", "--listen", address],
            environment=self.environment,
            log=self._log(METRICS),
            pid_files=self.layout.components,
        )

    def _wait_healthy(self, running: Mapping[str, psutil.Process]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        missing: Sequence[str] = _HEALTH_PARTS
        while missing and time.monotonic() < deadline:
            for name, process in running.items():
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    raise PlatformError(
                        f"{name} ended, its last lines ({self._log(name)}):\n{last_lines(self._log(name))}"
                    )
            time.sleep(_POLL_SECONDS)
            missing = [*unhealthy_parts(self.base_url), *self._unhealthy_metrics()]
        if missing:
            logs = self.layout.component_logs
            raise PlatformError(f"not healthy after {_START_SECONDS:.0f} s: {', '.join(missing)}; see {logs}")

    def _unhealthy_metrics(self) -> list[str]:
        try:
            answer = httpx.get(f"http://{self.layout.metrics_address.read_text()}/-/healthy", timeout=30.0)
        except httpx.HTTPError:
            return [METRICS]
        return [] if answer.is_success else [METRICS]

    def _log(self, name: str) -> Path:
        return self.layout.component_logs / f"{name}.log"


def unhealthy_parts(base_url: str) -> list[str]:
    """Return the parts of Airflow whose status is not healthy; all of them while the API server does not respond."""
    try:
        answer = httpx.get(f"{base_url}/api/v2/monitor/health", timeout=30.0).json()
    except (httpx.HTTPError, ValueError):
        return list(_HEALTH_PARTS)
    return [part for part in _HEALTH_PARTS if answer.get(part, {}).get("status") != "healthy"]


def stop(layout: Layout, say: Callable[[str], None]) -> int:
    """End every process of the platform at `layout`, also running tasks and Spark jobs; return how many there were.

    If a copy is interrupted here, the next copy run cleans up after it and continues it.
    """
    mark = str(layout.airflow_home)
    components = processes.recorded(layout.components)
    kin = processes.family(components.values(), mark)
    if not components and not kin:
        return 0
    say(f"waiting for {len(components)} components and {len(kin)} processes of theirs to end")
    # The API server is stopped last: an interrupted task reports to it, and is retried after the next start.
    for name, process in components.items():
        if name != "api-server":
            processes.ask_to_end(process)
    # The scheduler waits for its running tasks: these get a moment, then they are ended, too.
    scheduler = components.get("scheduler")
    psutil.wait_procs([scheduler] if scheduler else [], timeout=_TASKS_END_SECONDS)
    without_tasks = [process for process in components.values() if process != scheduler]
    tasks = processes.family(components.values(), mark) - processes.family(without_tasks, "")
    processes.end(tasks, patience_seconds=_TASKS_END_SECONDS)
    # A triggerer takes ten seconds to see that its child has ended; after a second SIGTERM it takes five.
    processes.end(components.values(), patience_seconds=_COMPONENTS_END_SECONDS)
    late = processes.family(components.values(), mark)
    processes.end(late, patience_seconds=_TASKS_END_SECONDS)
    processes.recorded(layout.components)
    return len(components) + len(kin | tasks | late)


def last_lines(log: Path, count: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
