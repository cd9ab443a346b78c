"""Which work is asked about when a run asks whether it can start, and which partitions it is told of."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import SecretStr
from sqlalchemy import update

from include.tiering.app import App, open_app
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.configs.service import ConfigService
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.schema import quota_ledger
from include.tiering.database.transactions import writing
from include.tiering.errors import MetadataUnavailableError, RemoteStorageFullError
from include.tiering.handover.contract import WATCH_DAG_ID
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.model.segments import TopicIdPartition
from include.tiering.operations import deployment_checks
from include.tiering.operations.checks import Check
from include.tiering.operations.deployment_checks import CLUSTER_METADATA, DAGS, LOG_DIRS, PAUSE, QUOTAS
from include.tiering.operations.readiness import NotReady, PartitionReadiness, present_ready
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.quotas.shared_quotas import SqlLedgerStore
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE, TOPIC_THRESHOLD, TOTAL_THRESHOLD
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.settings import TieringSettings
from include.tiering.settings.catalogue import LogDir
from tests.doubles.airflow_api_server import AirflowApiServer, serving
from tests.doubles.orphans import TinyCopies
from tests.doubles.segments import partition_of
from tests.doubles.tiny_deployment import PARTITION, TinyDeployment

OF_BROKERS = partition_of("brokers-topic", 3)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """`orders-0` can be copied; of a broker's partition not all was read."""

    def unread(_self: SqlMetadataIngestion) -> Mapping[TopicIdPartition, str]:
        return {OF_BROKERS: "7 records to go"}

    monkeypatch.setattr(SqlMetadataIngestion, "unread", unread)
    with TinyDeployment(tmp_path).open() as app:
        yield app


def test_each_check_says_what_it_found(app: App) -> None:
    found = {check.name: check.message for check in app.operations.ready().checks}
    assert (found[LOG_DIRS], found[CLUSTER_METADATA], found[PAUSE]) == ("1 readable", "known", "nothing is paused")
    app.adapters.stores.work.pause("payments", author="test")
    app.adapters.stores.work.pause("audit", author="test")
    found = {check.name: check.message for check in app.operations.ready().checks}
    assert found[PAUSE] == "paused topics: audit, payments"


@pytest.fixture
def airflow() -> Iterator[AirflowApiServer]:
    with serving(AirflowApiServer()) as running:
        yield running


@pytest.fixture
def in_airflow(app: App, tmp_path: Path, airflow: AirflowApiServer) -> Iterator[App]:
    """The same deployment, with a login for Airflow."""
    login = tmp_path / "login.json"
    login.write_text('{"username": "reader", "password": "s3cret"}')
    login.chmod(0o600)
    settings = app.settings.airflow.model_copy(update={"url": airflow.url, "login_file": login})
    with open_app(app.settings.model_copy(update={"airflow": settings})) as found:
        yield found


def _dags_check(app: App) -> Check:
    return next(check for check in app.operations.ready().checks if check.name == DAGS)


def test_dags_that_are_paused_in_airflow_are_named(in_airflow: App, airflow: AirflowApiServer) -> None:
    airflow.dags = {"tiering_copy": True, "tiering_audit": True, "tiering_ingest": False, "my_tiering_report": True}
    check = _dags_check(in_airflow)
    assert check.message.startswith("paused in Airflow, so that no run of them begins: tiering_audit, tiering_copy")
    assert "airflow dags unpause" in check.message
    assert (check.ok, check.wrong) == (True, False), "a person may have paused them, and a run can start"
    airflow.dags = {"tiering_copy": False, "tiering_audit": False}
    assert _dags_check(in_airflow).message == "none of 2 DAGs is paused in Airflow"
    airflow.dags = {"my_tiering_report": True}
    assert _dags_check(in_airflow).message.startswith("Airflow shows no DAG of the platform")


def test_a_watch_that_is_paused_while_a_handover_is_under_way_is_for_a_person(
    in_airflow: App, airflow: AirflowApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dags = {"tiering_handover": False, WATCH_DAG_ID: True}
    assert _dags_check(in_airflow).ok
    under_way = [SimpleNamespace(topic="orders", step="watch")]
    monkeypatch.setattr(SqlHandoverStore, "open_handovers", lambda _self: under_way)
    monkeypatch.setattr(deployment_checks, "forgotten_handovers", lambda *_: ())
    check = _dags_check(in_airflow)
    assert (check.ok, check.wrong, check.holds) == (False, True, True)
    assert "orders" in check.message
    assert f"`airflow dags unpause {WATCH_DAG_ID}`" in check.message


def test_whether_dags_are_paused_is_not_known_without_an_answer(
    app: App, in_airflow: App, airflow: AirflowApiServer
) -> None:
    """Without a login, of an Airflow that is away, and of something that is no Airflow."""
    check = _dags_check(app)
    assert check.ok
    assert check.message.startswith("whether DAGs are paused in Airflow is not known: no login")
    airflow.token_lasts = 0
    assert "not known: GET /api/v2/dags was refused with 401" in _dags_check(in_airflow).message
    airflow.shutdown()
    airflow.server_close()
    assert "does not answer" in _dags_check(in_airflow).message


def test_a_run_of_airflow_does_not_ask_which_dags_are_paused(in_airflow: App, airflow: AirflowApiServer) -> None:
    for pool in (COPIER_POOL, EXPIRATION_POOL, READER_POOL):
        assert DAGS not in {check.name for check in in_airflow.operations.ready(pool=pool).checks}
    assert not [path for _, path, _ in airflow.seen if "/dags" in path]


def without_ledger(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise MetadataUnavailableError("database is locked")

    monkeypatch.setattr(SqlLedgerStore, "exchange", silent)


@pytest.mark.parametrize("pool", [COPIER_POOL, EXPIRATION_POOL, READER_POOL])
def test_a_ledger_that_does_not_answer_stops_work_only_while_a_quota_is_set(
    app: App, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {check.name: check.message for check in app.operations.ready(pool=pool).checks}
    assert found[QUOTAS] == "the ledger answers, 0 workers"
    without_ledger(app, monkeypatch)
    found = {check.name: check.message for check in app.operations.ready(pool=pool).checks}
    assert found[QUOTAS].startswith("no quota is set, so work goes on although the ledger does not answer")
    app.adapters.stores.configs.alter(ALL_BROKERS, {TOTAL_COPY_QUOTA: "1000"}, author="test")
    readiness = app.operations.ready(pool=pool)
    assert not readiness.holds
    assert readiness.waitable
    assert any("the quota ledger does not answer, so nothing is sent" in line for line in readiness.missing)


def test_a_book_of_garbage_is_no_obstacle(app: App) -> None:
    engine = app.adapters._ledger_engine
    app.adapters.quota_ledger.announce(QuotasInForce(1, {}))
    with writing(engine) as connection:
        connection.execute(update(quota_ledger).values(content="garbage"))
    assert app.operations.ready(pool=COPIER_POOL).holds


def test_thresholds_without_effect_are_named(app: App) -> None:
    topic = ConfigEntity(EntityType.TOPICS, "orders")
    configs = app.adapters.stores.configs
    configs.alter(topic, {TOPIC_THRESHOLD: "10"}, author="test")
    assert f"{TOPIC_THRESHOLD} has no effect while topic quotas are off" in _check(app, QUOTAS)
    configs.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: "true"}, author="test")
    assert f"{TOPIC_THRESHOLD} has no effect on a broker without a total" in _check(app, QUOTAS)
    configs.alter(ALL_BROKERS, {TOTAL_THRESHOLD: "100"}, author="test")
    assert "no effect" not in _check(app, QUOTAS)


def _check(app: App, name: str) -> str:
    return next(check.message for check in app.operations.ready().checks if check.name == name)


def test_what_reads_back_is_told_what_is_unread_and_starts_all_the_same(app: App) -> None:
    found = app.operations.ready(pool=READER_POOL)
    assert found.partitions == (PartitionReadiness(OF_BROKERS, NotReady.UNREAD, "7 records to go"),)
    assert (found.holds, found.needs_one, found.ready) == (True, False, True)


@pytest.mark.parametrize("pool", [None, COPIER_POOL])
def test_a_copy_is_told_of_the_topics_it_copies_and_waits_while_all_of_them_wait(app: App, pool: str | None) -> None:
    assert app.operations.ready(pool=pool).partitions == (PartitionReadiness(PARTITION, None),)
    assert app.operations.ready(pool=pool, scope=RunScope(("other",))).partitions == ()
    app.adapters.stores.work.pause("orders", author="test")
    found = app.operations.ready(pool=pool)
    assert [one.reason for one in found.partitions] == [NotReady.PAUSED]
    assert (found.holds, found.needs_one, found.ready) == (True, True, False)


def test_expiration_is_told_of_all_that_is_archived_and_does_not_wait_for_what_is_paused(app: App) -> None:
    assert app.operations.ready(pool=EXPIRATION_POOL).partitions == ()
    archived = partition_of("archived")
    TinyCopies.into(app, archived).copy()
    app.adapters.stores.work.pause("archived", author="test")
    found = app.operations.ready(pool=EXPIRATION_POOL)
    assert [(one.topic_id_partition, one.reason) for one in found.partitions] == [(archived, NotReady.PAUSED)]
    assert (found.holds, found.needs_one, found.ready) == (True, False, True)


def has_pools(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Airflow answers, and has these pools."""
    monkeypatch.setattr(ConfigService, "mirror_pools", lambda _self: dict.fromkeys(names))


@pytest.mark.parametrize("pool", [COPIER_POOL, EXPIRATION_POOL, READER_POOL])
def test_a_pool_that_airflow_does_not_have_is_named_with_the_command_that_makes_it(
    app: App, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    app.adapters.stores.pool_mirror.record(pool, 4, seen=None, author="test")
    assert app.operations.ready(pool=pool).holds, "Airflow is not there to be asked"
    has_pools(monkeypatch, "another_pool")
    found = app.operations.ready(pool=pool)
    (line,) = found.missing
    assert line.startswith(f"pool: Airflow has no pool {pool}, so its tasks would never start: create it")
    assert "`python -m plugins.tiering_airflow.pools`" in line
    assert (found.ready, found.waitable) == (False, True)
    has_pools(monkeypatch, pool)
    assert app.operations.ready(pool=pool).holds


def test_jobs_that_read_wait_in_airflow_while_their_pool_has_no_slots(app: App) -> None:
    """A sensor that waited for slots would fail the run in the end."""
    app.adapters.stores.pool_mirror.record(READER_POOL, 0, seen=None, author="test")
    found = app.operations.ready(pool=READER_POOL)
    assert found.ready
    (check,) = [check for check in found.checks if check.name == "pool"]
    assert check.message == "remote_log_reader has 0 slots: its tasks wait in Airflow until it has some"


def test_deletions_need_no_free_space(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RemoteStorageFullError("nothing is free")

    monkeypatch.setattr(FileObjectStore, "check_capacity", full)
    monkeypatch.setattr(FileObjectStore, "put", full)
    for pool in (None, COPIER_POOL):
        assert list(app.operations.ready(pool=pool).missing) == ["storage: nothing is free"]
    found = app.operations.ready(pool=EXPIRATION_POOL)
    assert list(found.missing) == []
    (storage,) = [check.message for check in found.checks if check.name == "storage"]
    assert storage.endswith("it has no space, which deletions do not need: nothing is free")
    (tmp_path / "store" / MARKER_KEY).unlink()
    (line,) = app.operations.ready(pool=EXPIRATION_POOL).missing
    assert line.startswith(f"storage: the store has no {MARKER_KEY}")


@pytest.mark.parametrize("pool", [COPIER_POOL, EXPIRATION_POOL])
def test_while_a_check_does_not_hold_no_partition_is_looked_at(app: App, pool: str) -> None:
    app.adapters.stores.pool_mirror.record(pool, 0, seen=None, author="test")
    found = app.operations.ready(pool=pool)
    assert (found.holds, found.ready, found.partitions) == (False, False, ())
    assert any(line.startswith(f"pool: pool {pool} has 0 slots") for line in found.missing)


def test_one_wrong_path_among_the_log_dirs_is_for_a_person_and_the_others_are_copied(app: App, tmp_path: Path) -> None:
    wrong = LogDir(broker_id=2, path=tmp_path / "nowhere")
    settings = app.settings.model_copy(update={"log_dirs": (*app.settings.log_dirs, wrong)})
    with open_app(settings) as mistaken:
        found = mistaken.operations.ready(pool=COPIER_POOL)
    (check,) = [one for one in found.checks if one.name == LOG_DIRS]
    assert check.message.startswith("1 of 2 readable; partitions of the others wait: ")
    assert (check.ok, check.holds, check.wrong) == (False, True, True)
    assert (found.ready, found.partitions) == (True, (PartitionReadiness(PARTITION, None),))
    presented = present_ready(found)
    assert (presented.ok, presented.summary) == (
        False,
        "1 of 1 partition ready; for a person to put right: log dirs",
    )
    assert any("nowhere" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("database", "words", "waitable"), [("new.sqlite", "./tiering migrate", True), ("", "cannot use", False)]
)
def test_without_a_database_one_check_says_it_and_the_store_and_the_log_dirs_are_looked_at(
    app: App, tmp_path: Path, database: str, words: str, waitable: bool
) -> None:
    """Without a name the database is a directory, which cannot be written as a file, as on a read-only disk."""
    (tmp_path / "new").mkdir()
    remote = app.settings.remote_storage.model_copy(update={"url": (tmp_path / "new").as_uri()})
    metadata = app.settings.metadata.model_copy(update={"url": SecretStr(f"sqlite:///{tmp_path / 'new' / database}")})
    settings = app.settings.model_copy(update={"remote_storage": remote, "metadata": metadata})
    with open_app(settings) as fresh:
        checks = fresh.operations.ready(pool=COPIER_POOL).checks
    found = {check.name: check for check in checks}
    assert (found["schema"].ok, found["schema"].waitable) == (False, waitable)
    assert sum(words in check.message for check in checks) == 1
    assert found[PAUSE].message == "not known, for the cause under schema"
    assert (found[LOG_DIRS].ok, found[LOG_DIRS].message) == (True, "1 readable")
    storage = found["storage"]
    assert "has no marker of a database" in storage.message
    assert (storage.ok, storage.waitable, storage.wrong) == (False, True, False), "nothing is known to be wrong there"


def test_no_command_but_a_set_up_creates_a_database(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERING_CONFIG", raising=False)
    file = tmp_path / "state" / "metadata.sqlite"
    metadata = app.settings.metadata.model_copy(update={"url": SecretStr(f"sqlite:///{file}")})
    with open_app(TieringSettings(metadata=metadata)) as mistaken:
        with pytest.raises(MetadataUnavailableError) as caught:
            mistaken.sizes.report()
        assert not mistaken.adapters.has_schema()
    named = f"there is no database sqlite:///{file} (metadata.url: default, TIERING_CONFIG is not set)"
    assert named in str(caught.value)
    assert not file.parent.exists()


def test_no_ledger_is_created_beside_a_database_that_is_not_set_up(app: App, tmp_path: Path) -> None:
    file = tmp_path / "none.sqlite"
    metadata = app.settings.metadata.model_copy(update={"url": SecretStr(f"sqlite:///{file}")})
    with open_app(TieringSettings(metadata=metadata)) as mistaken:
        for read in (lambda: mistaken.adapters.quotas, lambda: mistaken.adapters.quota_ledger):
            with pytest.raises(MetadataUnavailableError, match="there is no database"):
                read()
    assert list(tmp_path.glob("none*")) == []
