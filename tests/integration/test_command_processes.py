"""Processes of `./tiering`: from where they start, what they import before anything else, what a shell completes.

A command imports a small part of the library: the rest would take most of the time of a short command.
"""

import os
import subprocess
import sys
from pathlib import Path

from include.tiering.app import open_app
from tests.doubles.archive import RUN_ID, planned_run, settings_of
from tests.doubles.source_tree import ROOT

_PROGRAM = """
import sys
from include.tiering.cli.app import cli
try:
    cli(["copy"])
except SystemExit as done:
    assert not done.code, done.code
print("\\n" + " ".join(sys.modules))
"""
_NOT_FOR_A_PLAN = (
    "alembic",
    "boto3",
    "confluent_kafka",
    "pyarrow",
    "include.tiering.audit.store",
    "include.tiering.cli.progress",
    "include.tiering.copying.copy_batch",
    "include.tiering.expiration.delete_segments",
    "include.tiering.handover.drive",
    "include.tiering.metadata_sync.publish",
    "include.tiering.recovery",
    "include.tiering.verification.suites",
)


def test_a_copy_with_nothing_to_do_imports_no_other_use_case(tmp_path: Path) -> None:
    config = planned_run(tmp_path, topics='["trimmed"]')
    with open_app(settings_of(config)) as app:
        assert app.copying.run_batch(RUN_ID, "0").copied
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "TIERING_CONFIG": str(config)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert "include.tiering.copying.plan_copy" in loaded
    assert not [name for name in _NOT_FOR_A_PLAN if name in loaded]


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


def test_a_shell_completes_commands_and_options() -> None:
    """With the script that the program prints, under the path by which this checkout is started."""
    script = (
        'eval "$(./tiering --show-completion bash)"; complete -p tiering >&2; '
        "for line in './tiering rel' './tiering sizes --b'; do COMP_WORDS=($line); "
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tiering_completion ./tiering; echo "${COMPREPLY[@]}"; done'
    )
    completed = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.stdout.split() == ["relocate-store", "--by"], completed.stderr


WITHOUT = """
import sys
from include.tiering.operations.exporters import exporting
with exporting(None, {}):
    pass
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""


def test_without_a_collector_nothing_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.stdout == "False\n"
