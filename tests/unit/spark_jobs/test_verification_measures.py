"""What a Spark task that measures segments hands over: a measure, a segment whose key is missing, or an error."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.verify_segments import LockedSegment
from spark_jobs import verification_measures as module
from tests.doubles.stored_log import copied_partition


def test_a_segment_whose_key_is_missing_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = copied_partition(tmp_path, segments=1)
    measure = measure_segment(
        partition.rows[0], previous=None, storage=partition.storage, limiter=UnlimitedBytes(), depth=Depth.SHALLOW
    )
    locked = LockedSegment("an id", "it is encrypted for key pair 'nobody'")

    def measure_all(wanted: Sequence[Any]) -> Iterator[Any]:
        assert len(wanted) == 4
        yield from (locked, measure)
        raise RemoteStorageUnavailableError("away")

    class App(SimpleNamespace):
        def __enter__(self) -> "App":
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

    app = App(verification=SimpleNamespace(measure_all=measure_all))
    settings: Any = SimpleNamespace(open_app=lambda: app)
    planned: list[Any] = [None] * 4
    rows = [row for batch in module._measured(planned, settings) for row in batch.to_pylist()]
    assert LockedSegment(**json.loads(rows[0]["locked"])) == locked
    assert module.measure_from_json(rows[1]["measure"]) == measure
    assert rows[2]["error"] == "RemoteStorageUnavailableError: away"
    assert [declared.split()[0] for declared in module.ROWS.split(", ")] == list(rows[0])
