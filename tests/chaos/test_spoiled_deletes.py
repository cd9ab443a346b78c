"""DeleteObjects of a real S3 server, spoiled: requests answered with 503, keys that are refused one by one."""

import re

import pytest

from include.tiering.app import App, open_app
from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.settings import load_settings
from tests.doubles.delete_worker import prepare
from tests.doubles.s3_proxies import Refusal, Spoiler, refusing_s3_proxy
from tests.doubles.s3_server import (
    CREDENTIALS,
    raw_client,
    versitygw_or_skip,
)

pytestmark = pytest.mark.chaos


@pytest.fixture
def spoiler(log_dir, tmp_path, monkeypatch):
    """A deployment over S3 whose deletes go through a spoiler; everything is copied, planned and approved."""
    with versitygw_or_skip(tmp_path / "s3") as server:
        server.make_bucket("kept")
        with refusing_s3_proxy(server.endpoint_url, raw_client(server.endpoint_url)) as (endpoint_url, found):
            variables = {
                "TIERING_REMOTE_STORAGE__URL": "s3://kept/tiered",
                "TIERING_REMOTE_STORAGE__ENDPOINT_URL": endpoint_url,
                "AWS_DEFAULT_REGION": "us-east-1",
                **CREDENTIALS,
                "TIERING_LOG_DIRS": f"3:{log_dir}",
                "TIERING_TOPICS__INCLUDE": "normal",
                "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
            }
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            with open_app(load_settings()) as app:
                prepare(app, "run")
            found.delete_requests = 0
            yield found


def require_rows_are_objects(app: App) -> int:
    """Every row that is no tombstone has an object, every object a row; returns the number of rows."""
    rows = [
        row.metadata
        for p in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(p)
    ]
    stored = [{thing.key for thing in app.adapters.storage.stat_log_segment(row)} for row in rows]
    assert all(stored)
    keys = {key for key, _ in app.adapters.storage.list_objects()}
    assert keys - {"_tiering-store.json"} == set().union(*stored)
    return len(rows)


def test_a_store_that_is_busy_for_a_while_is_waited_for(spoiler: Spoiler):
    spoiler.busy_requests = 2
    with open_app(load_settings()) as app:
        result = app.expiration.run_batch("run", "run/0")
        assert (result.failed, len(result.deleted)) == ((), len(app.adapters.stores.deletions.items("run")))
        assert require_rows_are_objects(app) == 0
    assert spoiler.delete_requests == 3


def test_a_store_whose_marker_cannot_be_read_deletes_nothing_and_the_next_try_ends_it(
    spoiler: Spoiler, monkeypatch: pytest.MonkeyPatch
):
    """A batch reads the marker before anything else: nothing is begun."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    spoiler.refusal = Refusal(re.compile("GET .*_tiering-store.json"), 503, "SlowDown")
    with open_app(load_settings()) as app:
        planned = app.adapters.stores.deletions.items("run")
        with pytest.raises(RemoteStorageUnavailableError, match="SlowDown"):
            app.expiration.run_batch("run", "run/0")
        assert app.adapters.stores.deletions.items("run") == planned
        (partition,) = app.adapters.stores.metadata.partitions()
        states = {row.metadata.state for row in app.adapters.stores.metadata.list_segments(partition)}
        assert states == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
        spoiler.refusal = None
        result = app.expiration.run_batch("run", "run/0")
        assert (result.failed, len(result.deleted)) == ((), len(planned))
        assert require_rows_are_objects(app) == 0


def test_a_store_that_stays_busy_loses_nothing_and_the_next_try_ends_it(
    spoiler: Spoiler, monkeypatch: pytest.MonkeyPatch
):
    """Every try of the request is refused, and then the batch: rows and objects stay, together, for the next one."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    spoiler.refusal = Refusal(re.compile("POST .*delete"), 503, "SlowDown")
    with open_app(load_settings()) as app:
        planned = app.adapters.stores.deletions.items("run")
        result = app.expiration.run_batch("run", "run/0")
        assert (result.deleted, len(result.failed), result.worth_retrying) == ((), len(planned), True)
        assert all("SlowDown" in str(failure.item.message) for failure in result.failed)
        assert app.adapters.stores.deletions.items("run") == planned
        (partition,) = app.adapters.stores.metadata.partitions()
        states = {row.metadata.state for row in app.adapters.stores.metadata.list_segments(partition)}
        assert states == {RemoteLogSegmentState.DELETE_SEGMENT_STARTED}
        refused, spoiler.refusal = spoiler.refusal, None
        assert require_rows_are_objects(app) == len(planned)
        spoiler.refusal = refused
        assert app.expiration.run_batch("run", "run/0").worth_retrying
        spoiler.refusal = None
        result = app.expiration.run_batch("run", "run/0")
        assert (result.failed, len(result.deleted)) == ((), len(planned))
        assert require_rows_are_objects(app) == 0
        assert {item.outcome for item in app.adapters.stores.deletions.items("run")} == {DeletionOutcome.DELETED}


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_refused_keys_keep_their_rows_until_the_next_run(spoiler: Spoiler, suffix: str):
    spoiler.locked = re.compile(rf"0{{18}}00-.*\.{suffix}$")
    with open_app(load_settings()) as app:
        result = app.expiration.run_batch("run", "run/0")
        (failed,) = result.failed
        assert not failed.retriable
        assert require_rows_are_objects(app) == 1
        outcomes = [item.outcome for item in app.adapters.stores.deletions.items("run")]
        assert outcomes.count(DeletionOutcome.FAILED) == 1
        assert outcomes.count(DeletionOutcome.DELETED) == len(outcomes) - 1
        (partition,) = app.adapters.stores.metadata.partitions()
        (row,) = app.adapters.stores.metadata.list_segments(partition)
        assert row.metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        assert len(spoiler.refused_keys) == 1
        spoiler.locked = None
        plan = app.expiration.plan("next")
        assert plan.segments == 1
        app.expiration.apply_limits("next")
        app.expiration.run_batch("next", "next/0")
        assert require_rows_are_objects(app) == 0
