"""Deletions go at their own rate, whatever the copy quota says."""

import time
from pathlib import Path

import pytest

from tests.doubles.archive import Archive

pytestmark = pytest.mark.integration


def test_requests_wait_for_their_rate_and_not_for_the_copy_quota(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_ms=0)
    archive.set_default(tiering_delete_max_requests_per_second=1, remote_log_manager_copy_max_bytes_per_second=1)
    began = time.monotonic()
    _, result = archive.expire()
    seconds = time.monotonic() - began
    assert len(result.deleted) == 10
    assert archive.remote() == {}
    assert seconds > 1.8, "two requests, one a second; at the copy quota they would never end"
