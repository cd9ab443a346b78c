"""What the log of a quality check holds."""

import subprocess
import sys

from tests.doubles.source_tree import ROOT

_PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
from include.tiering.app.adapters import great_expectations
from include.tiering.verification.suites import PARTITION_SUITES
great_expectations(PARTITION_SUITES)
"""


def test_great_expectations_logs_none_of_the_modules_that_it_loads() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=True)
    assert "great_expectations" not in done.stdout
