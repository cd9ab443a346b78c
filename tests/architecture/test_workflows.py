"""The hosted workflows call targets of the Makefile, may read and nothing else, and come to an end."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.doubles.source_tree import ROOT

_MAKEFILE: Final = (ROOT / "Makefile").read_text()
_WORKFLOWS: Final = {path.name: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
_ACTIONS: Final = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
_CALLED: Final = {
    "ci.yml": {"lint", "test-unit", "test-integration", "coverage"},
    "nightly.yml": {"test-kafka", "test-browser", "simulate"},
}


def _read(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def _jobs(path: Path) -> dict[str, dict[str, Any]]:
    jobs = _read(path)["jobs"]
    assert isinstance(jobs, dict)
    return jobs


def _targets(steps: list[dict[str, Any]]) -> set[str]:
    return {name for step in steps for name in re.findall(r"\bmake ([a-z0-9-]+)", step.get("run", ""))}


def test_each_workflow_calls_its_targets() -> None:
    called = {
        name: set().union(*(_targets(job["steps"]) for job in _jobs(path).values()))
        for name, path in _WORKFLOWS.items()
    }
    assert called == _CALLED


def test_every_target_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", _MAKEFILE, re.MULTILINE))
    prepared = set().union(*(_targets(_read(path)["runs"]["steps"]) for path in _ACTIONS))
    assert prepared
    assert set().union(prepared, *_CALLED.values()) <= targets


@pytest.mark.parametrize("path", _WORKFLOWS.values(), ids=_WORKFLOWS)
def test_a_workflow_may_read_alone_and_ends(path: Path) -> None:
    assert _read(path)["permissions"] == {"contents": "read"}
    for name, job in _jobs(path).items():
        assert "permissions" not in job, name
        assert isinstance(job["timeout-minutes"], int), name


@pytest.mark.parametrize("path", [*_WORKFLOWS.values(), *_ACTIONS], ids=lambda path: str(path.relative_to(ROOT)))
def test_foreign_actions_are_pinned_by_their_major_version(path: Path) -> None:
    for action in re.findall(r"uses: (\S+)", path.read_text()):
        assert action.startswith("./") or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", action), action


def test_uv_has_one_version() -> None:
    declared = re.search(r"^UV_VERSION := (\S+)$", _MAKEFILE, re.MULTILINE)
    assert declared
    for path in _ACTIONS:
        for step in _read(path)["runs"]["steps"]:
            if step.get("uses", "").startswith("astral-sh/setup-uv@"):
                assert step["with"]["version"] == declared[1]
