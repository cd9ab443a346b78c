"""The compose file: no secret of its own, nothing published beyond this host, every part checked and pinned."""

import re
from typing import Any, Final

import pytest
import yaml

from tests.doubles.source_tree import ROOT

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
