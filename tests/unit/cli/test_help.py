"""Help answers at once and teaches by example."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import Result

from include.tiering.cli.app import COMMANDS
from tests.doubles.source_tree import ROOT

_HEAVY = {
    "airflow",
    "alembic",
    "boto3",
    "great_expectations",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyspark",
    "sqlalchemy",
}
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
    assert "│ restore " not in shown


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from include.tiering.cli.app import cli\n"
        "try:\n    cli(['scan', '--help'])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n' + ' '.join(sys.modules))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "typer" in loaded
    assert not loaded & _HEAVY


def test_the_launcher_starts_from_any_directory_and_through_a_link(tmp_path: object) -> None:
    link = f"{tmp_path}/tiering"
    subprocess.run(["ln", "-s", str(ROOT / "tiering"), link], check=True)
    done = subprocess.run([link, "--help"], capture_output=True, text=True, cwd=str(tmp_path), timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: ./tiering" in done.stdout


def test_the_launcher_of_a_fresh_checkout_says_what_to_do(tmp_path: object) -> None:
    copy = f"{tmp_path}/tiering"
    subprocess.run(["cp", str(ROOT / "tiering"), copy], check=True)
    done = subprocess.run([copy, "scan"], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "run 'make setup'" in done.stderr
