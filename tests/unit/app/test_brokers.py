"""A deployment that may ask its brokers: their word counts for plans, readiness, the doctor and set-up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL
from include.tiering.errors import BrokersLoginError, BrokersUnavailableError, ForeignClusterError, SettingError
from include.tiering.kafka.cluster.contract import OpenTransaction
from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers
from include.tiering.kafka.log_dirs.contract import BoundsQuality
from include.tiering.operations.doctor import Cause
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import CLUSTER_ID, ORDERS, BrokerLogDir
from tests.doubles.model_brokers import ModelBrokers

AWAY = BrokersUnavailableError("no bootstrap server answers: broker kafka:9092: connection refused")


def _environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        "TIERING_CLUSTER__BOOTSTRAP_SERVERS": "kafka:9092",
        "TIERING_TOPICS__INCLUDE": "orders",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
        "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        **more,
    }


@pytest.fixture
def brokers() -> ModelBrokers:
    """Topic `orders` up to offset 25."""
    brokers = ModelBrokers(CLUSTER_ID)
    brokers.create_topic("orders", topic_id=ORDERS)
    brokers.partition(ORDERS, 0).high_watermark = 25
    return brokers


@pytest.fixture
def app(tmp_path: Path, brokers: ModelBrokers) -> Iterator[App]:
    """Its log dir has rolled segments at 0 and 10, and a high watermark that nobody wrote down."""
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    log_dir.partition().filled(0, 10, 20)
    log_dir.checkpoint("recovery-point-offset-checkpoint", {"orders-0": 25})
    with open_app(load_settings(environ=_environ(tmp_path, TIERING_LOG_DIRS=f"1:{log_dir.path}"))) as opened:
        opened.adapters.brokers = brokers
        opened.set_up.migrate()
        yield opened


def test_what_the_brokers_say_is_planned_and_copied(app: App) -> None:
    (replica,) = app.log_dirs.scan_all().replicas
    assert replica.bounds is BoundsQuality.EXACT
    assert app.copying.plan("run-1").segments == 2
    assert len(app.copying.run_batch("run-1", "run-1/0").copied) == 2


def test_without_their_answer_nothing_is_planned(app: App, brokers: ModelBrokers) -> None:
    brokers.fail("cluster_id", AWAY, times=None)
    with pytest.raises(BrokersUnavailableError):
        app.copying.plan("run-1")
    readiness = app.operations.ready(pool=COPIER_POOL)
    assert (readiness.ready, readiness.waitable) == (False, True)
    assert readiness.missing == (f"topic facts: {AWAY}",)
    expiration = app.operations.ready(pool=EXPIRATION_POOL)
    assert expiration.ready
    assert str(AWAY) in expiration.remarks[0]


def test_a_login_that_is_refused_is_not_waited_for(app: App, brokers: ModelBrokers) -> None:
    brokers.fail("cluster_id", BrokersLoginError("user tiering by PLAIN: login failed"), times=None)
    readiness = app.operations.ready(pool=COPIER_POOL)
    assert (readiness.ready, readiness.waitable) == (False, False)


def test_brokers_of_another_cluster_are_refused_by_name(app: App, brokers: ModelBrokers) -> None:
    brokers.id = "another-cluster-id-000"
    names = f"lead to cluster another-cluster-id-000, the database serves cluster {CLUSTER_ID}"
    with pytest.raises(ForeignClusterError, match=names):
        app.copying.plan("run-1")
    with pytest.raises(ForeignClusterError, match=names):
        app.broker_configs.alter(ALL_BROKERS, {"remote.log.reader.threads": "11"})
    assert "alter_broker_configs" not in brokers.calls
    readiness = app.operations.ready(pool=COPIER_POOL)
    assert (readiness.ready, readiness.waitable) == (False, False)


def test_a_broker_that_began_to_tier_stops_a_copy_before_it_is_finished(app: App, brokers: ModelBrokers) -> None:
    app.copying.plan("run-1")
    brokers.alter_topic_configs("orders", {"remote.storage.enable": "true"})
    assert app.copying.run_batch("run-1", "run-1/0").copied == ()
    assert app.copying.plan("run-2").segments == 0


def test_the_doctor_names_the_transaction_as_its_coordinator_knows_it(app: App, brokers: ModelBrokers) -> None:
    since_ms = app.adapters.clock.now_ms() - 3 * 3_600_000
    brokers.partition(ORDERS, 0).open_transactions.append(OpenTransaction(7, 0, 3, 5, "payments-1", since_ms, 60_000))
    (found,) = app.operations.diagnose("orders")
    assert found.cause is Cause.OPEN_TRANSACTION
    assert "producer 7 (payments-1) for 3h 00m from offset 3; last stable offset 3, high watermark 25" in found.finding


def test_without_log_dirs_the_cluster_is_the_brokers(tmp_path: Path, brokers: ModelBrokers) -> None:
    with open_app(load_settings(environ=_environ(tmp_path))) as app:
        app.adapters.brokers = brokers
        assert app.set_up.migrate().cluster_id == CLUSTER_ID


def test_the_connection_is_made_of_the_settings_and_checked_first(tmp_path: Path) -> None:
    with open_app(load_settings(environ=_environ(tmp_path))) as app:
        assert isinstance(app.adapters.brokers, KafkaBrokers)
        assert app.adapters.client_config()["bootstrap.servers"] == "kafka:9092"
        assert app.adapters._publisher_config() == app.adapters.client_config()
    incomplete = _environ(tmp_path, TIERING_CLUSTER__SECURITY_PROTOCOL="SASL_SSL")
    with (
        open_app(load_settings(environ=incomplete)) as app,
        pytest.raises(SettingError, match=r"cluster\.sasl_mechanism is not set"),
    ):
        app.adapters.client_config()
    with (
        open_app(load_settings(environ=_environ(tmp_path, TIERING_CLUSTER__BOOTSTRAP_SERVERS=""))) as app,
        pytest.raises(SettingError, match=r"cluster\.bootstrap_servers is not set"),
    ):
        app.adapters.client_config()
