"""What the copy of one more segment asks of the database and of a directory store: counted, not timed."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, event

from include.tiering.app import open_app
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.database.engine import WRITES
from include.tiering.model.segments import TopicIdPartition
from include.tiering.remote_storage.file.tree import FileTree
from tests.doubles.archive import Archive, settings_of

pytestmark = pytest.mark.integration

RUN: Final = "counted"
READ, WRITE, ROOT, MADE = "transactions that read", "transactions that write", "looks at the root", "directories made"


class Counted:
    """What the batch did for each segment, from the end of the one before to its own; its timers do not count."""

    def __init__(self) -> None:
        self.segments: list[Counter[str]] = []
        self._of_this: Counter[str] = Counter()

    def observe(self, step: CopyStep, _partition: TopicIdPartition, _base_offset: int) -> None:
        if step is CopyStep.FINISHED:
            self.segments.append(self._of_this)
            self._of_this = Counter()

    def count(self, what: str) -> None:
        if not threading.current_thread().daemon:
            self._of_this[what] += 1

    def begins(self, connection: Connection) -> None:
        options: Any = connection.get_execution_options()
        self.count(WRITE if options.get(WRITES) else READ)

    @property
    def usual(self) -> dict[str, int]:
        """Of most segments: the first of a partition costs more, and so does one at which something was due by time."""
        (most, _), *_ = Counter(tuple(sorted(one.items())) for one in self.segments).most_common()
        return dict(most)


@contextmanager
def counting_files(counted: Counted, patch: pytest.MonkeyPatch) -> Iterator[None]:
    held, make = FileTree._opened_root, os.mkdir

    def opened_root(self: FileTree) -> int:
        counted.count(ROOT)
        return held(self)

    def mkdir(*args: Any, **named: Any) -> None:
        counted.count(MADE)
        make(*args, **named)

    with patch.context() as within:
        within.setattr(FileTree, "_opened_root", opened_root)
        within.setattr(os, "mkdir", mkdir)
        yield


def test_a_segment_costs_six_transactions_and_ten_looks_at_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing: STARTED, FINISHED, the outcome. Reading: no divergence, the owner, whom the store belongs
    to. The root: before each of three objects is written and before it gets its name, as each is read
    back, and for the marker."""
    archive, counted = Archive.of(tmp_path), Counted()
    one_at_a_time = {"TIERING_COPIER__MAX__TRANSFERS": "1"}
    with open_app(settings_of(archive.config, one_at_a_time), observe=counted.observe) as app:
        app.copying.plan(RUN)
        event.listen(app.adapters.engine, "begin", counted.begins)
        with counting_files(counted, monkeypatch):
            result = app.copying.run_batch(RUN, f"{RUN}/0")
    assert not result.failed
    assert len(counted.segments) == len(result.copied) == 10
    assert counted.usual == {WRITE: 3, READ: 3, ROOT: 10}
