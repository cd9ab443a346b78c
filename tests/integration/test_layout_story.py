"""The main job by the library in each layout and form, from settings alone: copied, verified, audited, read back,
expired; and in the layout without manifests what cannot be done."""

import pickle
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.errors import SettingError, StateConflictError
from include.tiering.model.segments import Depth
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.key_pairs import key_files, private_pem

LAYOUTS: dict[str, dict[str, str]] = {
    "local_tiered_storage": {"LAYOUT": "local_tiered_storage"},
    "compressed": {"COMPRESSION_ENABLED": "true", "CHUNK_SIZE": "10000"},
    "encrypted": {
        "COMPRESSION_ENABLED": "true",
        "COMPRESSION_HEURISTIC_ENABLED": "true",
        "ENCRYPTION_ENABLED": "true",
        "ENCRYPTION_KEY_PAIR_ID": "one",
        "KEY_PREFIX": "t/of-",
        "CUSTOM_METADATA_FIELDS_INCLUDE": "REMOTE_SIZE",
    },
}


def settings_of(tmp_path: Path, layout: str) -> TieringSettings:
    pair = key_files(tmp_path, "one")
    brokers = broker_data("public") / "stopped"
    values = {"URL": (tmp_path / "store").as_uri(), **LAYOUTS[layout]}
    if layout == "encrypted":
        values["ENCRYPTION_KEY_PAIRS"] = f"one:{pair.public_key}:{pair.private_key}"
    environ = {
        "HOME": str(tmp_path),
        "TIERING_LOG_DIRS": f"1:{brokers}/broker-1,2:{brokers}/broker-2",
        "TIERING_TOPICS__INCLUDE": "orders",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'metadata.sqlite'}",
        **{f"TIERING_REMOTE_STORAGE__{name}": value for name, value in values.items()},
    }
    return load_settings(environ=environ)


def copied(app: App) -> int:
    app.set_up.migrate()
    plan = app.copying.plan("run")
    result = app.copying.run_batch("run", "run.0")
    assert (result.failed, len(result.copied)) == ((), sum(len(one.segments) for one in plan.partitions))
    return len(result.copied)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_main_job(tmp_path: Path, layout: str) -> None:
    with open_app(settings_of(tmp_path, layout)) as app:
        segments = copied(app)
        for depth in Depth:
            report = app.verification.verify_run("run", depth=depth)
            assert (report.segments, report.failed) == (segments, ())
        assert b"PRIVATE" not in pickle.dumps(app.adapters.orphans.layout), "Spark sends it to its tasks"
        audited = app.audit.run("audit")
        assert (audited.findings, audited.record.rows) == ((), segments)
        for partition in app.adapters.stores.metadata.partitions():
            rows = {row.metadata.start_offset: row for row in app.adapters.stores.metadata.list_segments(partition)}
            for fetched in app.reading.fetch_partition(partition, tmp_path / "out" / str(partition)):
                row = rows.pop(fetched.row.metadata.start_offset)
                assert fetched.path.stat().st_size == row.metadata.segment_size_bytes
                assert (row.metadata.custom_metadata is not None) == (layout == "encrypted")
            assert rows == {}
    source = broker_data("public") / "stopped" / "broker-1" / "orders-0"
    found = sorted((tmp_path / "out").rglob("orders-0/*.log"))
    assert found
    for path in found:
        assert path.read_bytes() == (source / path.name).read_bytes()


def test_without_manifests_nothing_is_rebuilt_or_adopted(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "local_tiered_storage")
    with open_app(settings) as app:
        copied(app)
    lost = load_settings(
        environ={
            "HOME": str(tmp_path),
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'new.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": settings.remote_storage.required_url(),
            "TIERING_REMOTE_STORAGE__LAYOUT": "local_tiered_storage",
        }
    )
    with open_app(lost) as app, pytest.raises(StateConflictError, match="writes no manifests"):
        app.recovery.plan_rebuild()


def test_keys_are_looked_at_before_anything_is_copied(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "encrypted")
    key_files(tmp_path, "two")
    (tmp_path / "one.pem").write_bytes(private_pem("two"))
    with open_app(settings) as app:
        app.set_up.migrate()
        storage = next(check for check in app.operations.ready().checks if check.name == "storage")
        assert not storage.ok
        assert "do not match" in storage.message
    (tmp_path / "one.pem").chmod(0o644)
    with open_app(settings) as app, pytest.raises(SettingError, match="others may read"):
        app.adapters.storage.check_writable()
