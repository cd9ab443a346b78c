"""What a number was measured on. No benchmark prints a rate without it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("apache-airflow", "boto3", "google-crc32c", "great-expectations", "pyspark", "sqlalchemy")


def machine_description() -> dict[str, Any]:
    """CPU, memory, kernel, load and versions of this host, now. Unknown values are None."""
    memory = dict(_meminfo())
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "load_1_5_15": [round(value, 2) for value in os.getloadavg()],
        "memory_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _meminfo() -> Iterator[tuple[str, int]]:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        yield name, int(rest.split()[0]) * 1024


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(program: str, argument: str) -> str | None:
    path = shutil.which(program)
    if path is None:
        return None
    done = subprocess.run([path, argument], capture_output=True, text=True, timeout=30, check=False)
    return next(iter((done.stdout or done.stderr).splitlines()), None)


class IdleMeter:
    """The share of all cores' time that nobody used since the meter was made, 0 to 1. Stolen time is not idle."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        spent = [now - before for now, before in zip(psutil.cpu_times(), self._before, strict=True)]
        # Linux counts guests within user and nice.
        names = self._before._fields
        total = sum(seconds for name, seconds in zip(names, spent, strict=True) if not name.startswith("guest"))
        idle = sum(seconds for name, seconds in zip(names, spent, strict=True) if name in ("idle", "iowait"))
        return round(idle / total, 3) if total else 1.0
