"""Files of gauges that ended processes left in the multi-process directory."""

import os
from pathlib import Path

import pytest

from include.tiering.telemetry import metrics
from include.tiering.telemetry.metrics import remove_files_of_ended_processes

OWN, INIT = os.getpid(), 1


def test_files_of_this_process_and_of_ended_ones_go_and_those_of_others_stay(tmp_path: Path) -> None:
    ended = 2**22 + 1
    names = [f"gauge_livesum_{pid}.db" for pid in (OWN, INIT, ended)]
    names += [f"counter_{ended}.db", "gauge_liveall_x.db", f"gauge_livemax_{ended}.db"]
    for name in names:
        (tmp_path / name).touch()
    remove_files_of_ended_processes(tmp_path)
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {f"gauge_livesum_{INIT}.db", f"counter_{ended}.db", "gauge_liveall_x.db"}


def test_a_file_that_another_process_removes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gauge_livesum_77.db"
    file.touch()

    def removed_meanwhile(_pid: int) -> bool:
        file.unlink()
        return False

    monkeypatch.setattr(metrics, "_is_another_process", removed_meanwhile)
    remove_files_of_ended_processes(tmp_path)
    assert not file.exists()
