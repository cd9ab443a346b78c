"""What was changed live is what batches, plans and limiters go by, in the joined library."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.quotas.contract import Scope
from include.tiering.quotas.shared_quotas import PATIENCE_MS
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import BrokerLogDir

COPY = "remote.log.manager.copy.max.bytes.per.second"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    log_dir = BrokerLogDir(tmp_path / "broker-1", cluster_id="cluster-of-the-tests-A")
    environ = {
        "TIERING_LOG_DIRS": f"1:{log_dir.path}",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'metadata.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": (tmp_path / "store").as_uri(),
        "TIERING_COPIER__MAX__BATCHES": "4",
    }
    (tmp_path / "store").mkdir()
    with open_app(load_settings(environ=environ)) as opened:
        opened.set_up.migrate()
        yield opened


def test_a_dynamic_setting_wins_until_it_is_removed(app: App) -> None:
    seen = []
    for value in ("9", None):
        app.configs.alter(ALL_BROKERS, {"tiering.copier.max.batches": value}, author="ann")
        live = app.effective_configs.settings()
        seen.append((live.copier.max_batches, live.origin("tiering.copier.max.batches")))
    assert seen == [(9, "dynamic config"), (4, "environment TIERING_COPIER__MAX__BATCHES")]


def test_a_change_of_a_quota_is_announced_to_the_ledger_that_workers_share(app: App) -> None:
    broker = ConfigEntity(EntityType.BROKERS, "1")
    first = app.configs.alter(ALL_BROKERS, {COPY: "100"}, author="ann")
    second = app.configs.alter(broker, {COPY: "50"}, author="ann")
    in_force = app.adapters.quota_ledger.in_force()
    assert first.version < second.version == in_force.version
    assert [in_force.of(Scope.parse(f"copy/broker/{broker_id}")) for broker_id in (1, 2)] == [50, 100]


def test_a_change_waits_for_a_worker_that_holds_the_ledger_for_longer_than_a_round(app: App, tmp_path: Path) -> None:
    app.adapters.quota_ledger.in_force()
    ledger = tmp_path / "metadata-quota.sqlite"
    with closing(sqlite3.connect(ledger, isolation_level=None, check_same_thread=False)) as worker:
        worker.execute("BEGIN IMMEDIATE")
        end = threading.Timer(2 * PATIENCE_MS / 1000, worker.execute, args=("ROLLBACK",))
        end.start()
        app.configs.alter(ALL_BROKERS, {COPY: "70"}, author="ann")
        end.join()
    assert app.adapters.quota_ledger.in_force().of(Scope.parse("copy/broker/1")) == 70
