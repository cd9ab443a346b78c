"""The compose file and the hosted CI."""

import io
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local.empty_wheel import empty_wheel, pyspark_version
from tests.doubles.source_tree import ROOT

_LIST_NAMES: Final = ("requirements.txt", "requirements-production.txt")
_ALSO_OF_PRODUCTION: Final = {"greenlet", "pyyaml", "zstandard"}

# The compose file: no secret of its own, nothing published beyond this host, every part checked and pinned.

_TEXT: Final = (ROOT / "docker-compose.yaml").read_text()
_SERVICES: Final[dict[str, Any]] = yaml.safe_load(_TEXT)["services"]
_ENDS_BY_ITSELF: Final = {"airflow-init"}
_NOT_SECRET: Final = {"TIERING_TOPICS"}


def _variables() -> list[tuple[str, str]]:
    """(name, what follows it) for every `${NAME...}`."""
    return re.findall(r"\$\{([A-Z0-9_]+)([^}]*)\}", _TEXT)


def test_every_variable_but_the_harmless_ones_must_be_given() -> None:
    for name, rest in _variables():
        assert name in _NOT_SECRET or rest.startswith(":?"), f"{name} has a default or may be absent"


def test_no_secret_stands_in_the_file() -> None:
    for service, definition in _SERVICES.items():
        for name, value in definition.get("environment", {}).items():
            if re.search(r"PASSWORD(?!S_FILE)|SECRET|KEY|TOKEN", name):
                assert str(value).startswith("${"), f"{service}: {name}"


def test_the_example_names_exactly_the_variables() -> None:
    example = re.findall(r"^([A-Z0-9_]+)=", (ROOT / "docker/example.env").read_text(), re.MULTILINE)
    assert sorted(example) == sorted({name for name, _ in _variables()})


@pytest.mark.parametrize("name", sorted(_SERVICES))
def test_a_service_is_checked_pinned_and_private(name: str) -> None:
    service = _SERVICES[name]
    assert "healthcheck" in service or name in _ENDS_BY_ITSELF
    assert "build" in service or re.search(r":\d", service["image"]), "an image without a version"
    assert service["cap_drop"] == ["ALL"]
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), port


# The hosted workflows call targets of the Makefile, may read and nothing else, and come to an end.

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


# The lists for pip: with the tests and without, and in both an empty wheel in place of pyspark-client.

_LISTS: Final = {name: (ROOT / name).read_text().splitlines() for name in _LIST_NAMES}


def test_the_empty_wheel_is_that_of_the_pinned_pyspark() -> None:
    """With its own bytes: who changes the pin or the program runs `make requirements`."""
    version = pyspark_version((ROOT / "pyproject.toml").read_text())
    name, content = empty_wheel(version)
    assert {path.name: path.read_bytes() for path in (ROOT / "packaging").iterdir()} == {name: content}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert {name.split("/")[0] for name in archive.namelist()} == {f"pyspark_client-{version}+empty.dist-info"}
    for lines in _LISTS.values():
        assert lines[:2] == ["--find-links packaging", f"pyspark-client=={version}+empty"]
        assert any(line.startswith(f"pyspark=={version}") for line in lines)


def test_production_installs_no_packages_of_the_tests() -> None:
    whole, production = (_LISTS[name] for name in _LIST_NAMES)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    of_tests = {re.match(r"[\w-]+", name)[0] for name in groups["test"]} - _ALSO_OF_PRODUCTION  # type: ignore[index]
    assert set(production) < set(whole)
    assert of_tests <= {line.partition("==")[0] for line in set(whole) - set(production)}
