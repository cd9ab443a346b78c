"""Who may use a database and a store: set-up over another one's store, and a database that is half rebuilt."""

from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.database.store_identity import known_clusters
from include.tiering.errors import ForeignStoreError, MetadataUnavailableError
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.stored_log import MARKER, StoredLog
from tests.doubles.tiny_deployment import TinyDeployment


@pytest.fixture
def stored(tmp_path: Path) -> StoredLog:
    stored = StoredLog.at(tmp_path / "store")
    for partition in (0, 1):
        stored.copy(0, partition=partition)
    return stored


@pytest.fixture
def settings(tmp_path: Path, stored: StoredLog) -> TieringSettings:
    """Without log dirs: the brokers are gone, too."""
    environ = {
        "HOME": str(tmp_path),
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'new.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": stored.root.as_uri(),
    }
    return load_settings(environ=environ)


def test_a_store_is_taken_over_by_a_rebuild_and_not_by_set_up(settings: TieringSettings, stored: StoredLog) -> None:
    with open_app(settings) as app:
        plan = app.recovery.plan_rebuild()
        assert (plan.found, plan.begun, plan.attempts) == (MARKER, None, 2)
        assert app.recovery.rebuild(plan, author="me", dry_run=True).marker is None
        assert stored.storage.read_marker() == MARKER
        report = app.recovery.rebuild(plan, author="me")
    with open_app(settings) as app:
        assert app.adapters.cluster_id == CLUSTER_ID
        assert app.set_up.migrate() == report.marker == stored.storage.read_marker()
        app.adapters.storage.check_writable()
        assert [one.segments for one in app.sizes.partition_sizes()] == [1, 1]


def test_a_half_rebuilt_database_serves_nobody(settings: TieringSettings) -> None:
    with open_app(settings) as app:
        assert app.recovery.rebuild(app.recovery.plan_rebuild(), author="me", stop=lambda: True).interrupted
    with open_app(settings) as app:
        for use in (
            lambda: app.adapters.cluster_id,
            lambda: app.sizes.partition_sizes(),
            app.set_up.migrate,
            lambda: app.adapters.storage,
        ):
            with pytest.raises(MetadataUnavailableError, match="rebuild to continue"):
                use()
        (schema, *_) = app.operations.ready().checks
        assert (schema.name, schema.ok, schema.waitable) == ("schema", False, True)
        plan = app.recovery.plan_rebuild()
        assert plan.begun == plan.found
        assert [one.before for one in app.recovery.rebuild(plan, author="me").partitions] == [True, False]


def test_set_up_over_the_store_of_another_database_leaves_both_alone(
    settings: TieringSettings, stored: StoredLog, tmp_path: Path
) -> None:
    log_dirs = tmp_path / "log-dir"
    log_dirs.mkdir()
    (log_dirs / "meta.properties").write_text(
        f"version=1\nbroker.id=1\nnode.id=1\ncluster.id={CLUSTER_ID}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    environ = {
        "HOME": str(tmp_path),
        "TIERING_LOG_DIRS": f"1:{log_dirs}",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'new.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": stored.root.as_uri(),
    }
    with open_app(load_settings(environ=environ)) as app:
        with pytest.raises(ForeignStoreError, match=r"\./tiering rebuild"):
            app.set_up.migrate()
        assert known_clusters(app.adapters.engine) == []
        assert stored.storage.read_marker() == MARKER
        assert not app.recovery.rebuild(app.recovery.plan_rebuild(), author="me").interrupted


def test_copies_are_adopted_only_into_a_store_that_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another() -> None:
        raise ForeignStoreError("another")

    deployment = TinyDeployment(tmp_path)
    deployment.copied(1)
    with deployment.open() as app:
        with monkeypatch.context() as armed:
            armed.setattr(app.recovery._ownership, "require", another)
            with pytest.raises(ForeignStoreError):
                app.recovery.plan_adoption()
        plan = app.recovery.plan_adoption()
        with monkeypatch.context() as armed:
            armed.setattr(app.recovery._ownership, "claim", another)
            with pytest.raises(ForeignStoreError):
                app.recovery.adopt(plan, "run", author="ada")
        assert app.recovery.adopt(plan, "run", author="ada").adopted == ()
