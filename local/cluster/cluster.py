"""Start the services in the order of their needs, wait until each is healthy, and stop all of them."""

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import psutil

from local import processes
from local.cluster.compose import Service
from local.cluster.host import Host, State
from local.cluster.parts import POSTGRES_USER
from local.platform import PlatformError, last_lines

_START_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 3.0
"""Between two health checks of a service during a start, whatever interval the compose file says."""
_TASKS_END_SECONDS: Final = 5.0
_END_SECONDS: Final = 30.0


@dataclass(slots=True)
class Cluster:
    """The services of one cluster, in the order of their needs. `say` is called with one line before each wait."""

    state: State
    services: Mapping[str, Service]
    host: Host
    say: Callable[[str], None]
    _running: dict[str, psutil.Process] = field(default_factory=dict)
    _healthy: set[str] = field(default_factory=set)
    _next_check: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start all services, each after those that it needs, and wait until all are healthy.

        Raises:
            PlatformError: one ended, or not all are healthy within 10 minutes; the rest keeps running.
        """
        self.say(f"waiting for {len(self.services)} services to be healthy")
        self._start(self.services)

    def ended(self) -> list[str]:
        """Return the services that have ended but should run: an engine of containers would start them again."""
        return [
            name for name, process in self._running.items() if not self.services[name].runs_once and _ended(process)
        ]

    def restart(self, name: str) -> None:
        """Start again a service that has ended, as the engine of containers does, and wait until it is healthy.

        Raises:
            PlatformError: it ended again, or is not healthy within 10 minutes.
        """
        self._healthy.discard(name)
        self._next_check.pop(name, None)
        self._start({name: self.services[name]})

    def _start(self, services: Mapping[str, Service]) -> None:
        running: dict[str, psutil.Process] = {}
        deadline = time.monotonic() + _START_SECONDS
        while not self._healthy.issuperset(services):
            for name, service in services.items():
                if name not in running and self._healthy.issuperset(service.needs):
                    running[name] = self._launch(service)
            self._check(running)
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(services.keys() - self._healthy))
                raise PlatformError(f"not healthy after {_START_SECONDS:.0f} s: {missing}; see {self.state.logs}")
            time.sleep(_POLL_SECONDS)

    def run(self, name: str, *command: str, seconds: float = 300.0) -> str:
        """Run a command where the service runs, as `docker compose exec` does; return its output.

        Raises:
            PlatformError: it exits with an error; the message ends with its output.
        """
        done = self._run(self.services[name], command, seconds)
        if done.returncode:
            raise PlatformError(
                f"{' '.join(command)} exits with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return str(done.stdout)

    def _launch(self, service: Service) -> psutil.Process:
        for mount in service.mounts:
            if not mount.is_secret:
                self.host.make_volume(mount.source)
        self._running[service.name] = processes.start(
            service.name,
            self.host.command(service, service.command, as_user=_user(service)),
            environment=self.host.environment(service),
            log=self.state.logs / f"{service.name}.log",
            pid_files=self.state.pid_files,
        )
        return self._running[service.name]

    def _check(self, running: Mapping[str, psutil.Process]) -> None:
        for name, process in running.items():
            service = self.services[name]
            ended = _ended(process)
            if name in self._healthy:
                if ended and not service.runs_once:
                    raise self._ended_error(name)
            elif service.runs_once:
                if ended and process.wait() != 0:
                    raise self._ended_error(name)
                if ended:
                    self._is_healthy(name)
            elif ended:
                raise self._ended_error(name)
            elif time.monotonic() >= self._next_check.get(name, 0.0):
                self._next_check[name] = time.monotonic() + _CHECK_SECONDS
                check = service.health_check
                if check is None or self._passes(service, check.command, check.timeout_seconds):
                    self._is_healthy(name)

    def _is_healthy(self, name: str) -> None:
        self._healthy.add(name)
        self.say(f"  {name}")

    def _passes(self, service: Service, command: tuple[str, ...], seconds: float) -> bool:
        try:
            return self._run(service, command, seconds).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _run(self, service: Service, command: tuple[str, ...], seconds: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.host.command(service, command),
            env=self.host.environment(service),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _ended_error(self, name: str) -> PlatformError:
        log = self.state.logs / f"{name}.log"
        return PlatformError(f"{name} ended, its last lines ({log}):\n{last_lines(log)}")


def stop(state: State, say: Callable[[str], None]) -> int:
    """End every process of the cluster, each service before those that it needs; return the number of processes.

    Airflow's tasks and their Spark jobs are ended first, so that no worker waits for them.
    """
    running = processes.recorded(state.pid_files)
    mark = str(state.root)
    kin = processes.family(running.values(), mark)
    if not running and not kin:
        return 0
    say(f"waiting for {len(running)} services and {len(kin)} processes of theirs to end")
    airflow = [process for name, process in running.items() if name.startswith("airflow")]
    for process in airflow:
        processes.ask_to_end(process)
    processes.end(processes.family(airflow, ""), patience_seconds=_TASKS_END_SECONDS)
    processes.end(airflow, patience_seconds=_END_SECONDS)
    stores = {"postgres", "redis", "versitygw", "kafka"}
    processes.end(
        [process for name, process in running.items() if name not in stores], patience_seconds=_TASKS_END_SECONDS
    )
    processes.end(running.values(), patience_seconds=_END_SECONDS)
    processes.end(processes.family(running.values(), mark), patience_seconds=_TASKS_END_SECONDS)
    processes.recorded(state.pid_files)
    return len(running) + len(kin)


def _user(service: Service) -> str:
    return POSTGRES_USER if service.name == "postgres" else ""


def _ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
