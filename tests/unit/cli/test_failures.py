"""Errors end as one sentence and an exit code; no traceback, no secret, no control character."""

import os
import signal
from collections.abc import Callable

import pytest
from typer.testing import Result

from include.tiering.errors import (
    CorruptFileError,
    ForeignStoreError,
    MetadataUnavailableError,
    RemoteStorageUnavailableError,
    SettingError,
    SourceUnreadableError,
)
from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeApp, batch_result

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptFileError("/d/0.log", "magic 9", 16), 1),
        (ForeignStoreError("the store belongs to another database"), 1),
        (SettingError("log_dirs is empty"), 2),
        (RemoteStorageUnavailableError("503 from the store"), 3),
        (MetadataUnavailableError("database is locked"), 3),
    ],
)
@pytest.mark.parametrize("command", [["scan"], ["sizes", "--json"], ["verify"], ["ready"], ["migrate"]])
def test_an_error_of_the_library(run: Run, app: FakeApp, command: list[str], error: Exception, code: int) -> None:
    app.fails = error
    result = run(*command)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"error: {error}\n"
    assert app.closed == 1


def test_what_the_system_refuses_is_no_bug(run: Run, app: FakeApp) -> None:
    app.fails = PermissionError(13, "Permission denied", "/out/orders-0")
    result = run("fetch", "orders", "0", "--output", "/out")
    assert (result.exit_code, result.stderr) == (1, "error: /out/orders-0: Permission denied\n")


def test_a_bug_is_named_without_a_traceback(run: Run, app: FakeApp) -> None:
    app.fails = KeyError("orders")
    result = run("scan")
    assert result.exit_code == 70
    assert result.stderr.splitlines()[0] == "internal error: KeyError: 'orders'"
    assert "--debug" in result.stderr
    assert "Traceback" not in result.output


def test_debug_shows_the_traceback_redacted(run: Run, app: FakeApp) -> None:
    app.fails = SourceUnreadableError("/d/0.log", "password=hunter2")
    result = run("--debug", "scan")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "hunter2" not in result.output


def test_no_secret_and_no_control_character_reaches_the_terminal(run: Run, app: FakeApp) -> None:
    app.fails = MetadataUnavailableError("postgresql://u:hunter2@h/db \x1b[31m is away")
    result = run("scan")
    assert "hunter2" not in result.output
    assert "\x1b" not in result.output


def test_names_from_disk_cannot_steer_the_terminal(run: Run, app: FakeApp) -> None:
    app.report = sample.scan_report(ScanError("/d/\x1b[2J[red]evil", None, "HostileNameError", "bad\nname"))
    for arguments in (["scan"], ["scan", "--json"]):
        result = run(*arguments)
        assert "\x1b" not in result.stdout
        assert "[red]evil" in result.stdout


def test_a_wrong_setting_ends_before_anything_is_opened(run: Run, app: FakeApp) -> None:
    result = run("scan", TIERING_REMOTE_STORAGE_URL="s3://b/p")
    assert (result.exit_code, app.closed) == (2, 0)
    assert "did you mean TIERING_REMOTE_STORAGE__URL?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sacn"], "scan"),
        (["scan", "--deeep"], "--deep"),
        (["fetch", "orders"], "PARTITION"),
        (["fetch", "orders", "x", "--output", "/tmp"], "valid integer"),
        (["plan", "--limit-bytes", "0"], "--limit-bytes"),
        (["scan", "--topic", "a b"], "a topic pattern"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], hint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert hint.lower() in result.stderr.lower()


def test_status_shows_the_settings_although_the_database_is_away(run: Run, app: FakeApp) -> None:
    def away() -> frozenset[str]:
        raise MetadataUnavailableError("database is locked")

    app.adapters.stores.work.paused_topics = away
    result = run("status")
    assert result.exit_code == 3
    assert "cluster.name" in result.stdout
    assert "database is locked" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_copy_end_cleanly_and_report(run: Run, app: FakeApp, number: signal.Signals) -> None:
    alive: list[bool] = []
    next_time: list[object] = []

    def interrupted(parent_alive: Callable[[], bool]) -> None:
        alive.append(parent_alive())
        os.kill(os.getpid(), number)
        alive.append(parent_alive())
        next_time.extend(map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)))

    before = signal.getsignal(number)
    app.on_batch = interrupted
    app.results = [batch_result(ended=BatchEnd.STOPPED)]
    app.adapters.stores.work.run_items = [sample.work_item(SegmentOutcome.PLANNED, 0)]
    result = run("copy", "--topic", "orders")
    assert alive == [True, False]
    assert result.exit_code == 128 + number
    assert "stopping cleanly; interrupt again to stop at once" in result.stderr
    assert next_time == [signal.SIG_DFL] * 2, "whatever threads wait for"
    assert "1 still planned" in result.stdout
    assert signal.getsignal(number) is before
