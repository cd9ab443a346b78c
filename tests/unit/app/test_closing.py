"""What the end of a command waits for, and what becomes of it if something cannot be closed."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from include.tiering.database.metrics_writer import WRITER_PATIENCE_MS
from include.tiering.telemetry.metrics import RunKind
from tests.doubles.tiny_deployment import TinyDeployment


def test_metrics_do_not_wait_long_for_a_locked_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deployment = TinyDeployment(tmp_path)
    deployment.copied(1)
    with deployment.open() as app:
        app.adapters.recorder.ended(RunKind.SIZES)
        assert app.adapters.cluster_id
        other = sqlite3.connect(str(app.adapters.engine.url.database))
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
    seconds = time.monotonic() - began
    other.close()
    assert "metrics are not written" in caplog.text
    assert seconds < 2 * WRITER_PATIENCE_MS / 1000


def test_what_cannot_be_closed_leaves_nothing_else_open(tmp_path: Path) -> None:
    closed: list[str] = []

    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            raise RuntimeError(self.name)

    deployment = TinyDeployment(tmp_path)
    deployment.copied(1)

    def use() -> None:
        with deployment.open() as app:
            parts: Any = app.adapters.__dict__
            parts |= {name: Client(name) for name in ("pools", "metadata_topic_reader", "metrics_writer")}
            parts["storage"] = object()
            opened.append(parts)

    opened: list[Any] = []
    with pytest.raises(RuntimeError):
        use()
    assert set(closed) == {"pools", "metadata_topic_reader", "metrics_writer"}
    assert "storage" not in opened[0]
