"""The benchmark of producers in a small form: each case still runs, and its result has figures."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.producers_rounds import CASES
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.source_tree import ROOT


def test_a_round_of_each_case(tmp_path: Path) -> None:
    require_kafka()
    command = [sys.executable, "-m", "benchmarks.bench_producers", "--rounds=1", "--seconds=2", "--rate-mib=2"]
    command += [f"--append={tmp_path / 'rounds'}", f"--directory={tmp_path}", f"--elsewhere={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["rounds"] == len((tmp_path / "rounds").read_text().splitlines()) == 1
    assert tuple(result["cases"]) == CASES
    assert all(figures["p99_ms"] > 0 for figures in result["cases"].values())
    assert result["ratios"]["platform / broker"]["median"] > 0
