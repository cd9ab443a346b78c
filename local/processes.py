"""Start detached processes, and find and end them by pid, with all processes that they started.

A pid file has the pid and the start time of a process, so a pid that the system has reused is never signalled.
Processes whose parent died are found by a mark in their environment, which only processes of this platform have.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

PLATFORM_MARK: Final = "LOCAL_PLATFORM_HOME"
_BIRTH_TOLERANCE_SECONDS: Final = 1.0


def start(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path, pid_files: Path
) -> psutil.Process:
    """Start `command`, a path with its arguments, in a session of its own; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pid_files.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    process = psutil.Process(pid)
    (pid_files / f"{name}.json").write_text(json.dumps({"pid": pid, "born": process.create_time()}))
    return process


def recorded(pid_files: Path) -> dict[str, psutil.Process]:
    """Return the live processes of the pid files, by name; remove the files of dead processes."""
    living = {}
    for file in sorted(pid_files.glob("*.json")):
        process = _alive(**json.loads(file.read_text()))
        if process is None:
            file.unlink()
        else:
            living[file.stem] = process
    return living


def _alive(pid: int, born: float) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - born) < _BIRTH_TOLERANCE_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def family(processes: Iterable[psutil.Process], mark: str) -> set[psutil.Process]:
    """Return all descendants of `processes`, and, unless `mark` is empty, every process whose environment has `mark`.

    `processes` themselves and this process are left out.
    """
    own = set(processes)
    found: set[psutil.Process] = set()
    for process in own:
        try:
            found.update(process.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
    if mark:
        found.update(process for process in psutil.process_iter() if _carries(process, mark))
    return found - own - {psutil.Process()}


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(PLATFORM_MARK) == mark)
    except (psutil.Error, OSError):
        return False


def end(processes: Iterable[psutil.Process], *, patience_seconds: float) -> list[psutil.Process]:
    """Send SIGTERM, wait, and send SIGKILL to those that still run; return the processes that had to be killed."""
    ours = list(processes)
    for process in ours:
        ask_to_end(process)
    _, stubborn = psutil.wait_procs(ours, timeout=patience_seconds)
    for process in stubborn:
        _kill(process)
    psutil.wait_procs(stubborn, timeout=patience_seconds)
    return list(stubborn)


def ask_to_end(process: psutil.Process) -> None:
    """Send SIGTERM; do nothing if the process is gone. psutil never signals a pid that was reused."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
