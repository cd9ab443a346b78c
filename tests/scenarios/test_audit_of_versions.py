"""A bucket that keeps versions, on a real S3 server: orphans go behind a marker, what is old goes by name alone."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from tests.doubles.archive import Archive
from tests.doubles.s3_server import (
    CREDENTIALS,
    raw_client,
    versitygw_or_skip,
)

pytestmark = pytest.mark.integration

BUCKET = "kept"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    with versitygw_or_skip(tmp_path / "s3", versioning=True) as started:
        started.make_bucket(BUCKET)
        raw_client(started.endpoint_url).put_bucket_versioning(
            Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
        )
        yield started


@pytest.fixture
def archive(server: Any, tmp_path: Path) -> Archive:
    """All of the topic was copied, a part of it has expired."""
    archive = Archive.of(tmp_path)
    remote = f's3://{BUCKET}/tiered"\nendpoint_url = "{server.endpoint_url}'
    archive.config.write_text(archive.config.read_text().replace((tmp_path / "store").as_uri(), remote))
    (tmp_path / "metadata.sqlite").unlink()
    with archive.open() as app:
        app.set_up.migrate()
    archive.copy()
    archive.set(retention_bytes=50_000)
    archive.set_default(tiering_audit_min_age_ms=0)
    archive.expire()
    return archive


def test_what_is_old_goes_by_name_alone(server: Any, archive: Archive) -> None:
    client = raw_client(server.endpoint_url)
    (log, *_) = (
        found["Key"] for found in client.list_objects_v2(Bucket=BUCKET)["Contents"] if found["Key"].endswith(".log")
    )
    orphan = f"{log.rpartition('.')[0][:-22]}{'A' * 21}Q.log"
    client.put_object(Bucket=BUCKET, Key=orphan, Body=b"x")
    client.create_multipart_upload(Bucket=BUCKET, Key=orphan)

    def audit(*flags: str) -> tuple[int, Counter[str]]:
        answer = CliRunner().invoke(cli, ["--config", str(archive.config), "audit", "--json", *flags])
        found = json.loads(answer.stdout)["findings"]
        return answer.exit_code, Counter(one["kind"] for one in found if one["state"] == "open")

    # Each plan replaces the store's marker, and a probe was written and removed: their versions stay as well.
    kept = client.list_object_versions(Bucket=BUCKET, Prefix="tiered/_tiering-")
    assert any(not version["IsLatest"] for version in kept["Versions"])
    assert kept["DeleteMarkers"]

    code, found = audit()
    expired = found["old-version"]
    assert expired > 0
    assert (code, found) == (
        1,
        {"orphan": 1, "open-multipart-upload": 1, "old-version": expired, "delete-marker": expired},
    )
    assert audit("--delete-orphans", "--approve")[0] == 0
    # The orphan is behind a marker now: whoever removed it by mistake has it still.
    assert audit() == (0, {"old-version": expired + 1, "delete-marker": expired + 1})
    assert audit("--delete-orphans", "--old-versions", "--approve")[0] == 0
    assert audit() == (0, {})
    assert archive.remote()
    archive.require_served()
