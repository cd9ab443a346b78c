"""The compose file and the hosted CI."""

import io
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from local.cluster.secret_files import AUTHORITY, OWNERS, contents
from local.empty_wheel import empty_wheel, pyspark_version
from tests.doubles.source_tree import ROOT

_LIST_NAMES: Final = ("requirements.txt", "requirements-production.txt")
_ALSO_OF_PRODUCTION: Final = {"greenlet", "kombu", "pyyaml", "zstandard"}

# The compose file: no secret of its own, nothing published beyond this host, every part checked, pinned and limited.

_TEXT: Final = (ROOT / "docker-compose.yaml").read_text()
_COMPOSE: Final[dict[str, Any]] = yaml.safe_load(_TEXT)
_SERVICES: Final[dict[str, Any]] = _COMPOSE["services"]
_ENDS_BY_ITSELF: Final = {"airflow-init"}
_SECRET: Final = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|BROKER_URL|RESULT_BACKEND|SQL_ALCHEMY_CONN")


def test_every_variable_is_harmless_and_has_a_default() -> None:
    assert re.findall(r"\$\{(\w+)(:-)?", _TEXT) == [("AIRFLOW_BASE_URL", ":-")]


def test_a_secret_is_a_file() -> None:
    for service, definition in _SERVICES.items():
        for name, value in definition.get("environment", {}).items():
            if _SECRET.search(name):
                assert name.endswith(("_FILE", "_CMD")), f"{service}: {name} is no file"
                path = str(value).removeprefix("cat ")
                assert path in _secrets_of(service), f"{service}: {path} is not mounted"


def test_the_files_of_secrets_are_those_that_are_written() -> None:
    named = {Path(entry["file"]).name for entry in _COMPOSE["secrets"].values()}
    assert named == contents().keys()
    assert set(OWNERS) < named


def test_secrets_get_into_no_image_and_no_commit() -> None:
    assert {Path(entry["file"]).parent.name for entry in _COMPOSE["secrets"].values()} == {"secrets"}
    assert "secrets" in (ROOT / ".dockerignore").read_text().splitlines()
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_a_secret_has_one_owner_among_its_readers() -> None:
    """A file belongs to one user id: who reads it must run under that id."""
    users = {"postgres": "postgres", "redis": "redis", "versitygw": "versitygw"}
    secret = {name: entry for name, entry in _COMPOSE["secrets"].items() if Path(entry["file"]).name != AUTHORITY}
    for name, entry in secret.items():
        readers = {users.get(service, "platform") for service in _SERVICES if name in _secret_names(service)}
        assert len(readers) == 1, f"{entry['file']}: {readers}"


def _secret_names(service: str) -> set[str]:
    return {entry if isinstance(entry, str) else entry["source"] for entry in _SERVICES[service].get("secrets", [])}


def _secrets_of(service: str) -> set[str]:
    """Paths at which a service finds its secrets."""
    return {
        f"/run/secrets/{entry}" if isinstance(entry, str) else entry["target"]
        for entry in _SERVICES[service].get("secrets", [])
    }


def test_what_settings_name_is_mounted() -> None:
    login_file = tomllib.loads(contents()["tiering.toml"])["airflow"]["login_file"]
    for service in (name for name, text in _SERVICES.items() if "TIERING_CONFIG" in text.get("environment", {})):
        environment = _SERVICES[service]["environment"]
        assert environment["TIERING_CONFIG"] in _secrets_of(service)
        if service.startswith("airflow"):
            reads_log_dirs = _SERVICES[service]["command"][-2:] == ["--queues", "broker-1"]
            assert reads_log_dirs == (
                "/srv/kafka/broker-1" in {volume.split(":")[1] for volume in _SERVICES[service]["volumes"]}
            )
            assert environment["AIRFLOW__TIERING__API_LOGIN_FILE"] in _secrets_of(service)
            assert login_file in _secrets_of(service)


def test_spark_workers_see_nothing_of_airflow() -> None:
    """Code of jobs runs there: it has no settings but those that travel with its tasks, and nothing of Airflow's."""
    for name in ("spark-worker-1", "spark-worker-2"):
        service = _SERVICES[name]
        assert not [variable for variable in service["environment"] if variable.startswith(("AIRFLOW", "TIERING"))]
        assert not [volume for volume in service["volumes"] if volume.startswith("airflow")]
        assert _secret_names(name) == {"authority", "spark_defaults"}


@pytest.mark.parametrize("name", sorted(_SERVICES))
def test_a_service_is_checked_pinned_limited_and_private(name: str) -> None:
    service = _SERVICES[name]
    assert "healthcheck" in service or name in _ENDS_BY_ITSELF
    assert "build" in service or re.search(r":\d", service["image"]), "an image without a version"
    assert service["cap_drop"] == ["ALL"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), port


def test_volumes_of_the_platform_are_directories_of_its_image() -> None:
    """A named volume takes its owner from the image; without the directory it would be root's."""
    dockerfile = (ROOT / "docker" / "platform.Dockerfile").read_text()
    made = set(re.findall(r"(?<= )/srv/\S+", dockerfile))
    for name, service in _SERVICES.items():
        for volume in service.get("volumes", []) if service.get("image") == "tiering-platform" else []:
            _, target, *mode = volume.split(":")
            assert target in made or mode == ["ro"], f"{name}: {target}"


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
