"""JSON in pieces is the same JSON; the progress bar shows what SQL says."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from include.tiering.cli.command import JsonOutput, TextOutput, json_pieces, output_for
from include.tiering.cli.progress import RunProgress
from include.tiering.copying.report import present_scan
from include.tiering.errors import MetadataUnavailableError
from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.runs.contract import BatchProgress
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeWork

_LEAVES = st.none() | st.booleans() | st.integers() | st.text()
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_the_pieces_of_a_document_join_to_it(document: dict[str, object]) -> None:
    assert json.loads("".join(json_pieces(document))) == document


def test_a_terminal_gets_tables_and_names_from_disk_cannot_steer_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = ScanError("/d/\x1b[2J[red]evil", None, "HostileNameError", "bad\nname")
    output_for(as_json=False, is_terminal=True).show(present_scan(sample.scan_report(error)))
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "[red]evil" in shown
    assert "orders-0" in shown


@pytest.mark.parametrize(
    ("as_json", "is_terminal", "kind"),
    [(True, True, JsonOutput), (True, False, JsonOutput), (False, False, TextOutput)],
)
def test_a_pipe_gets_whole_lines_and_json_is_json_everywhere(as_json: bool, is_terminal: bool, kind: type) -> None:
    assert isinstance(output_for(as_json=as_json, is_terminal=is_terminal), kind)


def report(batch_id: str, done_bytes: int, *, finished: bool) -> BatchProgress:
    return BatchProgress("run-1", batch_id, None, "host", 1, "orders-0", done_bytes, 4096, 100.0, finished)


def shown_by(work: FakeWork) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with RunProgress(work, "run-1", 4096, console) as progress:  # type: ignore[arg-type]
        progress.refresh()
    return screen.getvalue()


def test_the_bar_adds_up_the_batches_and_names_the_partition_and_the_pause() -> None:
    work = FakeWork()
    work.reports = [report("a", 1024, finished=True), report("b", 1024, finished=False)]
    work.pause("orders", author="me")
    screen = shown_by(work)
    assert "orders-0 (paused: orders)" in screen
    assert "2.0/4.1 kB" in screen or "2.0/4.0 KiB" in screen


def test_the_bar_survives_a_database_that_is_away() -> None:
    class Away(FakeWork):
        def progress(self, run_id: str) -> list[BatchProgress]:
            raise MetadataUnavailableError("locked")

    assert "copying" in shown_by(Away())


def test_without_a_terminal_nothing_is_drawn() -> None:
    screen = io.StringIO()
    with RunProgress(FakeWork(), "run-1", 4096, Console(file=screen)) as progress:  # type: ignore[arg-type]
        progress.refresh()
    assert screen.getvalue() == ""
