"""The path of a real segment through the library, traced from scan to verdict, stays within its limits."""

import pytest

from local.structure.limits import beyond_limits, limits_of
from local.structure.source import read_project
from local.structure.trace import run_trace
from tests.doubles.source_tree import ROOT

pytestmark = pytest.mark.integration


def test_a_segment_passes_no_more_modules_than_its_limit() -> None:
    project = read_project(ROOT, with_tests=False)
    trace = run_trace(ROOT, project)
    assert set(trace.modules) <= project.by_module.keys()
    assert not beyond_limits(trace.values, limits_of(ROOT))
