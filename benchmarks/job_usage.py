"""CPU and memory of a Spark job on a local master: its JVM, its Python driver and its Python tasks, apart."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil

POLL_SECONDS: Final = 0.3
JVM: Final = "jvm"
DRIVER: Final = "python driver"
TASKS: Final = "python tasks"


class JobUsage:
    """What a process and all below it used; pages that several share count once.

    A process is looked at each 0.3 seconds, so the last moments of one that ended are missing.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_seconds: dict[tuple[int, float], float] = {}
        self.peak_bytes = 0
        self.peak_by_role: dict[str, int] = defaultdict(int)

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu_seconds.values())

    def document(self) -> dict[str, Any]:
        return {
            "cpu_seconds": round(self.cpu_seconds, 1),
            "peak_bytes": self.peak_bytes,
            "peak_bytes_by_role": dict(self.peak_by_role),
        }

    def look(self) -> None:
        held: dict[str, int] = defaultdict(int)
        try:
            family = [psutil.Process(self._pid), *psutil.Process(self._pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                times = process.cpu_times()
                self._cpu_seconds[process.pid, process.create_time()] = times.user + times.system
                held[_role(process)] += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
        self.peak_bytes = max(self.peak_bytes, sum(held.values()))
        for role, size_bytes in held.items():
            self.peak_by_role[role] = max(self.peak_by_role[role], size_bytes)


def _role(process: psutil.Process) -> str:
    command = process.cmdline()
    if not command or "java" in command[0] or command[0].endswith("sh"):
        return JVM
    return TASKS if any(part.endswith("daemon") for part in command) else DRIVER


@contextmanager
def watched_usage(pid: int) -> Iterator[JobUsage]:
    """Look at the job `pid` until the context ends."""
    usage = JobUsage(pid)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            usage.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield usage
    finally:
        over.set()
        thread.join()
