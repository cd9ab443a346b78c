"""Opening the ledger of SQLite disturbs nobody and is disturbed by nobody."""

import sqlite3
from contextlib import closing
from pathlib import Path

from include.tiering.clock import SystemClock
from include.tiering.quotas.shared_quotas import open_ledger_engine


def test_an_existing_ledger_opens_while_another_process_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metadata.sqlite'}"
    first = open_ledger_engine(url, SystemClock())
    with closing(sqlite3.connect(str(first.url.database), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        second = open_ledger_engine(url, SystemClock())
        writer.execute("ROLLBACK")
    assert second.url == first.url
    assert first.url.database == str(tmp_path / "metadata-quota.sqlite")
    first.dispose()
    second.dispose()
