"""`./tiering metrics serve` as a process: it shows what other processes recorded, and ends when it is asked to."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from include.tiering.copying.metrics import COPY_BYTES
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.scrapes import samples_of
from tests.doubles.source_tree import ROOT
from tests.doubles.tiny_deployment import TinyDeployment


@contextmanager
def process(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {
        "HOME": str(directory),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "TIERING_METADATA__URL": f"sqlite:///{directory / 'tiering.sqlite'}",
    }
    command = [sys.executable, "-m", "include.tiering.cli", "metrics", "serve", *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def test_it_shows_what_processes_recorded_that_have_ended(tmp_path: Path) -> None:
    deployment = TinyDeployment(tmp_path)
    deployment.copied(2)
    deployment.run("sizes", "--json")
    with process(tmp_path, "--listen", "127.0.0.1:0") as serving:
        assert serving.stdout is not None
        said = serving.stdout.readline()
        address = said.removeprefix("metrics are at http://").removesuffix("/metrics\n")
        connection = HTTPConnection(address, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/metrics")
        shown = samples_of(connection.getresponse().read().decode())
        connection.close()
        serving.send_signal(signal.SIGTERM)
        _, complaints = serving.communicate(timeout=PATIENCE_SECONDS)
    assert shown["RemoteLogSizeBytes", (("topic", "orders"),)] == 1_000
    assert shown["tiering_last_run_timestamp_seconds", (("kind", "sizes"),)] > 0
    assert (serving.returncode, complaints) == (0, "stopping cleanly; interrupt again to stop at once\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--listen", "0.0.0.0:0"), "--token-file"), (("--token-file", "absent"), "absent"), (("--listen", "x"), "HOST")],
)
def test_what_it_refuses_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    TinyDeployment(tmp_path)
    with process(tmp_path, *arguments) as refused:
        _, complaints = refused.communicate(timeout=PATIENCE_SECONDS)
    assert refused.returncode == 2
    assert said in complaints
    assert "Traceback" not in complaints


RECORD = """
import sys, time
from include.tiering.app import open_app
from include.tiering.copying.metrics import COPY_BYTES
from include.tiering.database import metric_series
from include.tiering.settings import load_settings
metric_series.seconds_to_next_write = lambda *_: 0.1  # in place of a minute
with open_app(load_settings()) as app:
    while True:
        app.adapters.recorder.add(COPY_BYTES, 1, "orders")
        time.sleep(0.01)
"""


def test_what_a_killed_process_recorded_before_its_last_write_is_kept(tmp_path: Path) -> None:
    deployment = TinyDeployment(tmp_path)

    def counted() -> float:
        with deployment.open() as app:
            return stored_value(app.adapters.metrics_writer.series, "RemoteCopyBytesPerSec", {"topic": "orders"}) or 0

    environment = {"PYTHONPATH": str(ROOT), "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.sqlite'}"}
    with subprocess.Popen([sys.executable, "-c", RECORD], env=environment) as working:
        try:
            eventually(lambda: counted() > 0, "the first write")
        finally:
            working.kill()
    kept = counted()
    assert kept > 0
    with deployment.open() as app:
        app.adapters.recorder.add(COPY_BYTES, 5, "orders")
    assert counted() == kept + 5
