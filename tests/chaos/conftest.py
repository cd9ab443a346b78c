"""One deployment per test: a copy of a real broker's log dir, a fresh store of each kind, a fresh database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.broker_data import copy_of
from tests.doubles.copy_process import worker_template
from tests.doubles.quotas import ask_the_ledger_at_once
from tests.doubles.s3_server import CREDENTIALS, versitygw_or_skip


@pytest.fixture(scope="session", autouse=True)
def _workers() -> Iterator[None]:
    with worker_template():
        yield


@pytest.fixture(autouse=True)
def _prompt_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_the_ledger_at_once(monkeypatch)


@pytest.fixture(params=["file", "s3"])
def storage(request, tmp_path) -> Iterator[dict[str, str]]:
    """TIERING_... variables of a fresh store."""
    if request.param == "file":
        (tmp_path / "remote").mkdir()
        yield {"TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path}/remote"}
        return
    with versitygw_or_skip(tmp_path / "s3") as server:
        server.make_bucket("kept")
        yield {
            "TIERING_REMOTE_STORAGE__URL": "s3://kept/tiered",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": server.endpoint_url,
            "AWS_DEFAULT_REGION": "us-east-1",
            **CREDENTIALS,
        }


@pytest.fixture
def log_dir(tmp_path) -> Path:
    """Broker 3's log directory after a crash and a recovery: topics `normal` and `prealloc`."""
    return copy_of("crash", tmp_path, part="recovered-stopped")


@pytest.fixture
def deployment(storage, log_dir, tmp_path, monkeypatch) -> None:
    """The environment of a deployment that copies the topic `normal`."""
    variables = {
        **storage,
        "TIERING_LOG_DIRS": f"3:{log_dir}",
        "TIERING_TOPICS__INCLUDE": "normal",
        # A batch that is started again claims what was its own: no lease has to end for it.
        "TIERING_COPIER__LEASE__MS": "600000",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
        # What a killed worker leaves is known exactly with one transfer at a time.
        "TIERING_COPIER__MAX__TRANSFERS": "1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
