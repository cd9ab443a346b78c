"""Checks before a run: what stops it, what it can wait for, what it does without."""

from collections.abc import Callable

import pytest

from include.tiering.errors import (
    ForeignStoreError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    SettingError,
    SourceUnreadableError,
    StorePlaceUnknownError,
    TieringError,
)
from include.tiering.operations.readiness import Check, Readiness, run_checks


def fails(error: TieringError) -> Callable[[], str]:
    def probe() -> str:
        raise error

    return probe


@pytest.mark.parametrize(
    ("error", "waitable"),
    [
        (RemoteStorageError("denied"), True),
        (RemoteStorageFullError("full"), True),
        (RemoteStorageUnavailableError("busy"), True),
        (SourceUnreadableError("/d", "gone"), True),
        (ForeignStoreError("theirs"), False),
        (StorePlaceUnknownError("run migrate"), True),
        (RemoteStoreMissingError("no bucket"), False),
        (SettingError("wrong"), False),
    ],
)
def test_what_fails_stops_a_run_that_waits_if_that_can_help(error: TieringError, waitable: bool) -> None:
    readiness = Readiness(run_checks({"first": lambda: "fine", "second": fails(error)}))
    assert readiness.checks == (Check("first", True, True, "fine"), Check("second", False, waitable, str(error)))
    assert (readiness.ready, readiness.waitable) == (False, waitable)
    assert (readiness.missing, readiness.remarks) == ((f"second: {error}",), ())


def test_what_a_run_does_without_is_said_with_what_it_means() -> None:
    probes = {"disk": fails(SourceUnreadableError("/d", "gone"))}
    readiness = Readiness(run_checks(probes, does_without={"disk": "its bytes count as 0", "other": ""}))
    assert (readiness.ready, readiness.missing) == (True, ())
    assert readiness.remarks == ("disk: /d: gone; this run goes on: its bytes count as 0",)


def test_nothing_is_remarked_of_what_is_there() -> None:
    readiness = Readiness(run_checks({"disk": lambda: "3 readable"}, does_without={"disk": "its bytes count as 0"}))
    assert (readiness.ready, readiness.remarks) == (True, ())


def test_a_wrong_setting_is_not_done_without() -> None:
    readiness = Readiness(run_checks({"disk": fails(SettingError("another cluster"))}, does_without={"disk": ""}))
    assert (readiness.ready, readiness.waitable, readiness.remarks) == (False, False, ())
