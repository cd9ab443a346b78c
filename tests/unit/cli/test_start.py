"""A command imports a small part of the library: the rest would take most of the time of a short command."""

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
