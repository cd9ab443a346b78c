"""The writer of a process: what it writes and when, and what becomes of a write that fails."""

import threading
from typing import Any

import pytest

from include.tiering.database import metrics_writer as writer_module
from include.tiering.database.metric_series import SETTLED_MS
from include.tiering.database.metrics_writer import MetricsWriter, seconds_to_next_write
from include.tiering.errors import MetadataUnavailableError
from include.tiering.telemetry.metrics import Metric, MetricKind, Recorded
from tests.doubles.manual_clock import ManualClock
from tests.doubles.partial import Partial
from tests.doubles.patience import PATIENCE_SECONDS

COPIES = Metric("copies", MetricKind.COUNTER, ("topic",), "Copies.")


class Written(Partial):
    """Stands for the store."""

    def __init__(self) -> None:
        self.amounts: list[float] = []
        self.error: Exception | None = None
        self.tries = 0
        self.is_written = threading.Event()

    def write(self, recorded: Recorded) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.amounts += recorded.added.values()
        self.is_written.set()


@pytest.fixture
def store() -> Written:
    return Written()


@pytest.fixture
def writer(store: Written) -> MetricsWriter:
    any_store: Any = store
    return MetricsWriter(lambda: any_store, ManualClock())


def test_what_is_left_is_written_at_the_end(writer: MetricsWriter, store: Written) -> None:
    writer.recorder.add(COPIES, 2, "orders")
    writer.close()
    assert store.amounts == [2]
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics-writer"]


def test_a_process_that_records_nothing_opens_no_database() -> None:
    def no_store() -> Any:
        raise AssertionError("not needed")

    MetricsWriter(no_store, ManualClock()).close()


@pytest.mark.parametrize("error", [MetadataUnavailableError("away"), AttributeError("away")])
def test_a_failed_write_is_made_up_for_by_the_next(
    writer: MetricsWriter, store: Written, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    writer.recorder.add(COPIES, 2, "orders")
    store.error = error
    writer.write()
    assert "away" in caplog.text
    store.error = None
    writer.recorder.add(COPIES, 3, "orders")
    writer.close()
    assert store.amounts == [5]


def test_a_thread_writes_when_a_minute_has_ended(
    writer: MetricsWriter, store: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "seconds_to_next_write", lambda *_: 0.01)
    for amount in (2, 3):
        store.is_written.clear()
        writer.recorder.add(COPIES, amount, "orders")
        assert store.is_written.wait(PATIENCE_SECONDS)
    writer.close()
    assert store.amounts == [2, 3]


@pytest.mark.parametrize("process_id", [0, 1, 31, 4_321])
def test_each_process_writes_once_in_a_minute_soon_after_it_began(process_id: int) -> None:
    for second in range(0, 3_600, 7):
        moment = second + seconds_to_next_write(float(second), process_id)
        assert second < moment <= second + 60
        assert 1 <= moment % 60 <= SETTLED_MS / 1000 - 5


def test_a_host_that_refuses_threads_fails_no_work_and_a_later_value_tries_again(
    writer: MetricsWriter, store: Written, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "seconds_to_next_write", lambda *_: 0.01)
    with monkeypatch.context() as at_the_limit:
        at_the_limit.setattr(threading.Thread, "start", _refused)
        for _ in range(3):
            writer.recorder.add(COPIES, 1, "orders")
    assert caplog.text.count("can't start new thread") == 1
    writer.recorder.add(COPIES, 1, "orders")
    assert store.is_written.wait(PATIENCE_SECONDS)
    writer.close()
    assert store.amounts == [4]


def _refused(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_write_that_fails_while_the_process_ends_is_not_tried_twice(store: Written) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow_store() -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE_SECONDS)
        return store

    store.error = MetadataUnavailableError("away")
    writer = MetricsWriter(slow_store, ManualClock())
    writing = threading.Thread(target=writer.write)
    writer.recorder.add(COPIES, 2, "orders")
    writing.start()
    assert begun.wait(PATIENCE_SECONDS)
    writer._thread = writing
    threading.Timer(0.05, goes_on.set).start()
    writer.close()
    assert store.tries == 1


def test_the_end_does_not_wait_for_a_write_that_hangs(
    store: Written, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "_MOST_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(writer_module, "seconds_to_next_write", lambda *_: 0.01)
    begun, goes_on = threading.Event(), threading.Event()

    def slow_store() -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE_SECONDS)
        return store

    writer = MetricsWriter(slow_store, ManualClock())
    writer.recorder.add(COPIES, 2, "orders")
    assert begun.wait(PATIENCE_SECONDS)
    writer.close()
    assert "lost" in caplog.text
    goes_on.set()
    assert store.is_written.wait(PATIENCE_SECONDS)
