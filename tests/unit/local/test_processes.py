"""Processes are started detached, found again, and ended with what they started."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from local import processes

_PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "


@pytest.fixture
def pid_files(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    yield directory
    ours = processes.recorded(directory).values() if directory.exists() else ()
    kin = processes.family(ours, str(tmp_path))
    processes.end([*ours, *kin], patience_seconds=5)


def _start(tmp_path: Path, pid_files: Path, code: str) -> psutil.Process:
    return processes.start(
        "part",
        [sys.executable, "-c", code],
        environment={**os.environ, processes.PLATFORM_MARK: str(tmp_path)},
        log=tmp_path / "logs" / "part.log",
        pid_files=pid_files,
    )


def _wait_for_child(process: psutil.Process) -> psutil.Process:
    for _ in range(500):
        if children := process.children():
            return children[0]
        process_gone = psutil.wait_procs([process], timeout=0.02)[0]
        assert not process_gone
    raise AssertionError("no child was started")


def test_a_process_is_found_again_by_its_pid_file(tmp_path: Path, pid_files: Path) -> None:
    started = _start(tmp_path, pid_files, "import time; print('hello', flush=True); time.sleep(600)")
    assert processes.recorded(pid_files) == {"part": started}
    assert os.getsid(started.pid) == started.pid
    assert processes.end([started], patience_seconds=10) == []
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
    psutil.wait_procs([parent], timeout=10)
    assert processes.family([], str(tmp_path)) == {child}
    processes.end([child], patience_seconds=10)
    assert processes.family([], str(tmp_path)) == set()


def test_who_does_not_listen_is_killed(tmp_path: Path, pid_files: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    started = _start(tmp_path, pid_files, deaf)
    log = tmp_path / "logs" / "part.log"
    while "deaf" not in log.read_text():
        assert started.is_running()
    assert processes.end([started], patience_seconds=0.2) == [started]
    assert not started.is_running()
