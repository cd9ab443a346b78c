"""What asks nobody about topics works where nobody can be asked: a protective decision above all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.errors import SettingError, StateConflictError
from tests.doubles.tiny_deployment import TinyDeployment


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Set up, and then given brokers with a certificate file that is not there."""
    deployment = TinyDeployment(tmp_path)
    with deployment.open() as set_up:
        settings = set_up.settings
    cluster = settings.cluster.model_copy(
        update={
            "bootstrap_servers": "127.0.0.1:1",
            "security_protocol": "SSL",
            "ssl_ca_location": tmp_path / "gone.pem",
        }
    )
    with open_app(settings.model_copy(update={"cluster": cluster})) as opened:
        yield opened


def test_the_brokers_cannot_be_asked(app: App) -> None:
    with pytest.raises(SettingError):
        _ = app.adapters.cluster_metadata


def test_runs_are_withdrawn(app: App) -> None:
    with pytest.raises(StateConflictError):
        app.expiration.withdraw("unknown", author="test")
    with pytest.raises(StateConflictError):
        app.audit.withdraw_removals("unknown", author="test")


def test_runs_and_sizes_are_told(app: App) -> None:
    assert not app.copying.run_report("unknown").items
    assert app.sizes.partition_sizes() == []
    assert app.topic_lifecycle.shared_names() == frozenset()
