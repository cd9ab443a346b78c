"""A topic that is named exactly is copied without cluster metadata, but not after it was known once."""

import shutil
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.database.store_identity import SeenClusterMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.broker_data import broker_data

TOPIC = "bigrecs"
METADATA_LOG = "__cluster_metadata-0"


@pytest.fixture
def settings(tmp_path: Path) -> TieringSettings:
    """One broker with one topic, its log dir writable, and the metadata log beside it."""
    source = broker_data("public") / "stopped" / "broker-2"
    log_dir = tmp_path / "broker-2"
    log_dir.mkdir()
    for found in source.iterdir():
        if found.is_file():
            shutil.copy(found, log_dir)
        elif found.name.startswith((TOPIC, METADATA_LOG)):
            shutil.copytree(found, log_dir / found.name)
    return load_settings(
        environ={
            "TIERING_LOG_DIRS": f"2:{log_dir}",
            "TIERING_TOPICS__INCLUDE": TOPIC,
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        }
    )


def _hide_metadata_log(settings: TieringSettings) -> None:
    shutil.rmtree(settings.log_dirs[0].path / METADATA_LOG)


def _reasons(settings: TieringSettings) -> tuple[set[IneligibleReason | None], list[str]]:
    with open_app(settings) as app:
        report = app.log_dirs.scan_all(topics=[TOPIC])
    rolled = {segment.reason for replica in report.replicas for segment in replica.segments if not segment.active}
    return rolled, [error.error for error in report.errors]


def test_without_metadata_from_the_beginning_the_users_word_counts(settings: TieringSettings) -> None:
    _hide_metadata_log(settings)
    with open_app(settings) as app:
        app.set_up.migrate()
        assert app.copying.plan("run-1").segments > 0
        assert not app.adapters.stores.seen_cluster_metadata.were_known()
    assert None in _reasons(settings)[0]


def test_once_metadata_were_known_their_absence_refuses(settings: TieringSettings) -> None:
    with open_app(settings) as app:
        app.set_up.migrate()
        planned = app.copying.plan("run-1")
        assert planned.segments > 0
    _hide_metadata_log(settings)
    reasons, errors = _reasons(settings)
    assert (reasons, errors) == ({IneligibleReason.TOPIC_UNKNOWN}, ["ClusterMetadataError"])
    with open_app(settings) as app:
        assert app.copying.plan("run-2").partitions == ()
        # What was planned before they went away is not copied either.
        copied = app.copying.run_batch("run-1", "run-1/0")
    assert copied.copied == ()
    assert {failure.item.error for failure in copied.failed} == {"ClusterMetadataError"}


def test_a_dry_run_remembers_nothing(settings: TieringSettings) -> None:
    with open_app(settings) as app:
        app.set_up.migrate()
        app.copying.plan("run-1", dry_run=True)
        assert not app.adapters.stores.seen_cluster_metadata.were_known()


def test_it_is_remembered_once_and_for_one_cluster(settings: TieringSettings) -> None:
    with open_app(settings) as app:
        app.set_up.migrate()
        for _ in range(2):
            app.adapters.stores.seen_cluster_metadata.record()
        assert app.adapters.stores.seen_cluster_metadata.were_known()
        assert not SeenClusterMetadata(app.adapters.engine, "another cluster").were_known()
