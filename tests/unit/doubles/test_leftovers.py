"""The leak check finds a process that outlives its test, and only one of this run."""

import os
import subprocess
import sys
from pathlib import Path

from tests.doubles.leftovers import MARK, new_root_entries, processes_left_behind, root_entries
from tests.doubles.patience import PATIENCE_SECONDS

_WAITS_FOR_ITS_INPUT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_a_running_child_is_named_until_it_ends() -> None:
    environment = {**os.environ, MARK: "only-this-test"}
    with subprocess.Popen(_WAITS_FOR_ITS_INPUT, env=environment, stdin=subprocess.PIPE) as child:
        (found,) = processes_left_behind("only-this-test", patience_seconds=0.0)
        assert found.startswith(f"{child.pid} ")
        assert processes_left_behind("another-run", patience_seconds=0.0) == []
    assert processes_left_behind("only-this-test", patience_seconds=PATIENCE_SECONDS) == []


def test_new_names_at_the_top_are_reported(tmp_path: Path) -> None:
    before = root_entries(tmp_path)
    (tmp_path / "spark-warehouse").mkdir()
    (tmp_path / ".cache").mkdir()
    assert new_root_entries(tmp_path, before) == ["spark-warehouse"]
