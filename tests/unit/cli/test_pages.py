"""Help pages, output and generated pages."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import Result

from include.tiering.app.metrics import METRICS
from include.tiering.cli.app import COMMANDS
from include.tiering.cli.command import JsonOutput, TextOutput, json_pieces, output_for
from include.tiering.cli.docs_pages import main
from include.tiering.cli.progress import RunProgress
from include.tiering.configs.config_catalogue import all_configs
from include.tiering.copying.report import present_scan
from include.tiering.errors import MetadataUnavailableError
from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.runs.contract import BatchProgress
from include.tiering.settings.catalogue import all_settings
from tests.doubles import sample_values as sample
from tests.doubles.fake_app import FakeWork

# Help answers at once and teaches by example.

_NAMES = [function.__name__.replace("_", "-") for function, _, _ in COMMANDS]


@pytest.mark.parametrize("name", _NAMES)
def test_every_command_shows_an_example_of_itself(run: Callable[..., Result], name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Example: ./tiering " in result.stdout
    assert f"./tiering {name}" in result.stdout


def test_the_root_lists_exactly_the_commands_that_work_and_the_exit_codes(run: Callable[..., Result]) -> None:
    shown = run("--help").stdout
    assert all(f" {name} " in shown for name in _NAMES)
    assert "0 done, 1 findings or refused, 2 usage or setting, 3 worth retrying" in shown
    assert "│ restored " not in shown


# JSON in pieces is the same JSON; the progress bar shows what SQL says.

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


def test_without_a_terminal_a_line_is_written_and_nothing_drawn() -> None:
    screen = io.StringIO()
    with RunProgress(FakeWork(), "run-1", 4096, Console(file=screen)) as progress:  # type: ignore[arg-type]
        progress.refresh()
    assert screen.getvalue() == "copying: 0 B of 4.0 KiB\n"


def test_a_line_that_cannot_be_written_stops_no_work() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    work = []
    with RunProgress(FakeWork(), "run-1", 4096, Console(file=Full())):  # type: ignore[arg-type]
        work.append("done")
    assert work == ["done"]


# The generated pages name everything that is declared, and a stale page is found.


def test_every_setting_and_metric_has_a_row(tmp_path: Path) -> None:
    assert main([], tmp_path) == 0
    settings, metrics = (tmp_path / "settings.md").read_text(), (tmp_path / "metrics.md").read_text()
    assert [s.name for s in all_settings() if f"`{s.name}`<br>`{s.environment_name}`" not in settings] == []
    assert [c.name for c in all_configs() if f"`{c.name}`" not in settings] == []
    assert [m.name for m in METRICS if f"`{m.name}" not in metrics] == []
    rows = [line for page in (settings, metrics) for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") and line.count("|") in (3, 4, 5) for line in rows)


def test_the_pages_of_this_repository_are_fresh() -> None:
    """They say each default, unit and bound: who changes one sees it there, too."""
    assert main(["--check"]) == 0


def test_a_stale_or_missing_page_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], tmp_path) == 1
    main([], tmp_path)
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "metrics.md").write_text("old")
    assert main(["--check"], tmp_path) == 1
    assert "metrics.md is stale" in capsys.readouterr().err
    assert (tmp_path / "metrics.md").read_text() == "old"
