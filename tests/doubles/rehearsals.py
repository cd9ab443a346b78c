"""`./tiering handover --rehearse` over nothing but log directories: no brokers, no database, no store."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.doubles.kafka_lab.artifacts import jars
from tests.doubles.source_tree import ROOT

_REHEARSAL_SECONDS: Final = 700


def rehearsed(directory: Path, log_dirs: Sequence[Path], topic: str, version: str, *more: str) -> dict[str, Any]:
    """The document of a rehearsal that succeeds; its configuration is written into `directory`."""
    config = directory / "tiering.toml"
    tables = [f'[[log_dirs]]\nbroker_id = {_node_id(log_dir)}\npath = "{log_dir}"' for log_dir in log_dirs]
    config.write_text("\n".join(tables))
    command = [str(ROOT / "tiering"), "--config", str(config), "handover", topic, "--rehearse", *more]
    command += ["--kafka-home", str(jars(version)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_REHEARSAL_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return dict(json.loads(done.stdout))


def _node_id(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("node.id=")).removeprefix("node.id=")
