"""Processes of a local platform: started detached, found again, and ended with what they started; health checks."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from local import processes
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.source_tree import ROOT

_PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "


@pytest.fixture
def pid_files(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    yield directory
    ours = processes.recorded(directory).values() if directory.exists() else ()
    kin = processes.family(ours, str(tmp_path))
    processes.end([*ours, *kin], patience_seconds=PATIENCE_SECONDS)


def _start(tmp_path: Path, pid_files: Path, code: str) -> psutil.Process:
    return processes.start(
        "part",
        [sys.executable, "-c", code],
        environment={**os.environ, processes.PLATFORM_MARK: str(tmp_path)},
        log=tmp_path / "logs" / "part.log",
        pid_files=pid_files,
    )


def _wait_for_child(process: psutil.Process) -> psutil.Process:
    return eventually(process.children, "a child is started")[0]


def test_a_process_is_found_again_by_its_pid_file(tmp_path: Path, pid_files: Path) -> None:
    started = _start(tmp_path, pid_files, "import time; print('hello', flush=True); time.sleep(600)")
    assert processes.recorded(pid_files) == {"part": started}
    assert os.getsid(started.pid) == started.pid
    assert processes.end([started], patience_seconds=PATIENCE_SECONDS) == []
    assert processes.recorded(pid_files) == {}
    assert list(pid_files.iterdir()) == []


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(pid_files: Path) -> None:
    pid_files.mkdir()
    born = psutil.Process().create_time() - 100
    (pid_files / "part.json").write_text(json.dumps({"pid": os.getpid(), "born": born}))
    assert processes.recorded(pid_files) == {}


def test_children_belong_to_the_family_and_so_do_orphans(tmp_path: Path, pid_files: Path) -> None:
    parent = _start(tmp_path, pid_files, _PARENT + "time.sleep(600)")
    child = _wait_for_child(parent)
    assert processes.family([parent], str(tmp_path)) == {child}
    parent.kill()
    psutil.wait_procs([parent], timeout=PATIENCE_SECONDS)
    assert processes.family([], str(tmp_path)) == {child}
    processes.end([child], patience_seconds=PATIENCE_SECONDS)
    assert processes.family([], str(tmp_path)) == set()


def test_who_does_not_listen_is_killed(tmp_path: Path, pid_files: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    started = _start(tmp_path, pid_files, deaf)
    log = tmp_path / "logs" / "part.log"
    eventually(lambda: "deaf" in log.read_text(), "it does not listen any more")
    assert processes.end([started], patience_seconds=0.2) == [started]
    psutil.wait_procs([started], timeout=PATIENCE_SECONDS)
    assert not started.is_running()


def test_a_check_of_nobody_fails_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    command: Callable[[str], list[str]] = lambda kind: [  # noqa: E731
        *(sys.executable, str(ROOT / "docker" / "healthy.py"), kind, "127.0.0.1", port, "/")
    ]
    for kind in ("http", "airflow", "spark-worker"):
        assert subprocess.run(command(kind), check=False).returncode == 1
