"""The joined library: what only the parts together can refuse."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import open_app
from include.tiering.errors import SettingError
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.memory_pools import MemoryPools


def settings(root: Path, log_dir: Path) -> TieringSettings:
    config = root / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir}"}}]
[metadata]
url = "sqlite:///{root / "metadata.sqlite"}"
[remote_storage]
url = "{(root / "store").as_uri()}"
[topics]
include = ["orders"]
"""
    )
    return load_settings(config, environ={"HOME": str(root)})


def orders(path: Path, cluster_id: str) -> Path:
    """A log directory with one eligible segment."""
    log_dir = BrokerLogDir(path, cluster_id=cluster_id)
    log_dir.create_topic()
    log_dir.partition().filled(0, 10)
    log_dir.all_current({"orders-0": 10})
    return log_dir.path


class ClosedPools(MemoryPools):
    """Counts how often it was closed: a client of HTTP keeps connections."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_was_opened_is_closed_and_nothing_else_is_opened(tmp_path: Path) -> None:
    with open_app(settings(tmp_path, orders(tmp_path / "ours", "cluster-of-the-tests-A"))) as app:
        app.set_up.migrate()
        connections: Any = app.adapters.engine.pool
        pools = ClosedPools()
        app.adapters.pools = pools
        assert (connections.checkedin(), pools.closed) == (1, 0)
    assert (connections.checkedin(), pools.closed) == (0, 1)
    with open_app(settings(tmp_path, tmp_path / "ours")) as app:
        pass
    assert not app.__dict__.keys() & {"pools", "engine", "storage"}


@pytest.mark.parametrize("dry_run", [True, False])
def test_segments_of_another_cluster_are_never_planned(tmp_path: Path, dry_run: bool) -> None:
    ours = orders(tmp_path / "ours", "cluster-of-the-tests-A")
    theirs = orders(tmp_path / "theirs", "cluster-of-the-tests-B")
    with open_app(settings(tmp_path, ours)) as app:
        app.set_up.migrate()
        assert app.copying.plan("run-1", dry_run=dry_run).segments == 1
    with (
        open_app(settings(tmp_path, theirs)) as app,
        pytest.raises(SettingError, match="cluster-of-the-tests-B"),
    ):
        app.copying.plan("run-2", dry_run=dry_run)
