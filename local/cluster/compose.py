"""Read docker-compose.yaml and the Dockerfile of the platform: what each service runs, with which variables and mounts.

Only keys that docker-compose.yaml uses are understood; any other key of a service is an error, so that no part of the
description is left out silently. `IGNORED` names the keys that mean nothing for a process.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

IGNORED: Final = frozenset(
    {"image", "build", "cap_drop", "security_opt", "init", "user", "ports", "mem_limit", "restart"}
)
_KNOWN: Final = IGNORED | {"command", "environment", "secrets", "volumes", "depends_on", "healthcheck"}
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_SECONDS: Final = {"s": 1.0, "m": 60.0}
_INTERVAL, _TIMEOUT, _RETRIES = "30s", "30s", 3
"""Compose's own defaults of health checks."""


class ComposeError(RuntimeError):
    """The compose file has what this module does not understand; the message names the service and the key."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume by its name, or a secret by its file, at an absolute path of the service."""

    source: str
    target: str
    is_secret: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command that exits with 0 if the service works, run every `interval_seconds`, `retries` times at most."""

    command: tuple[str, ...]
    interval_seconds: float
    timeout_seconds: float
    retries: int


@dataclass(frozen=True, slots=True)
class Service:
    """One service. `needs` names services that start first; `runs_once` says that it ends by itself.

    `is_ours`: it runs the platform's image.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    needs: tuple[str, ...]
    health_check: HealthCheck | None
    is_ours: bool
    runs_once: bool = field(default=False)

    @classmethod
    def of(cls, name: str, text: Mapping[str, Any], secret_files: Mapping[str, str]) -> Self:
        if unknown := sorted(text.keys() - _KNOWN):
            raise ComposeError(f"service {name} has {', '.join(unknown)}, which local/cluster does not understand")
        return cls(
            name=name,
            command=tuple(text.get("command", ())),
            environment=dict(text.get("environment", {})),
            mounts=(*_volumes(text.get("volumes", ())), *_secrets(text.get("secrets", ()), secret_files)),
            needs=tuple(text.get("depends_on", {})),
            health_check=_health_check(text.get("healthcheck")),
            is_ours=text.get("image") == "tiering-platform",
            runs_once=text.get("restart") == "no",
        )


def read_services(compose: str, variables: Mapping[str, str]) -> dict[str, Service]:
    """Return the services of a compose file in an order in which each comes after those that it needs.

    Args:
        compose: the text of the file.
        variables: the values of `${NAME}`; a name that is missing has the file's default.

    Raises:
        ComposeError: a variable without a default is missing, or the file has what is not understood here.
    """
    document = yaml.safe_load(_interpolated(compose, variables))
    files = {name: Path(entry["file"]).name for name, entry in document.get("secrets", {}).items()}
    services = {name: Service.of(name, text, files) for name, text in document["services"].items()}
    ordered: dict[str, Service] = {}
    while waiting := {name: service for name, service in services.items() if name not in ordered}:
        ready = {name: service for name, service in waiting.items() if ordered.keys() >= set(service.needs)}
        if not ready:
            raise ComposeError(f"{', '.join(sorted(waiting))} need each other, or a service that does not exist")
        ordered |= ready
    return ordered


def image_environment(dockerfile: str) -> dict[str, str]:
    """Return the variables of the Dockerfile's `ENV`; `$PATH` stays as it is written."""
    joined = dockerfile.replace("\\\n", " ")
    lines = re.findall(r"^ENV +(.*)$", joined, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())


def _interpolated(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if name in variables:
            return variables[name]
        if kind != "-":
            raise ComposeError(f"${name} is not set: {rest or 'it has no default'}")
        return str(rest)

    return _VARIABLE.sub(value, text)


def _volumes(entries: Any) -> Iterator[Mount]:
    for entry in entries:
        source, target, *mode = entry.split(":")
        yield Mount(source, target, read_only=mode == ["ro"])


def _secrets(entries: Any, files: Mapping[str, str]) -> Iterator[Mount]:
    for entry in entries:
        name, target = (
            (entry, f"/run/secrets/{entry}") if isinstance(entry, str) else (entry["source"], entry["target"])
        )
        yield Mount(files[name], target, is_secret=True, read_only=True)


def _health_check(text: Mapping[str, Any] | None) -> HealthCheck | None:
    if text is None:
        return None
    kind, *command = text["test"]
    return HealthCheck(
        ("sh", "-c", *command) if kind == "CMD-SHELL" else tuple(command),
        _seconds(text.get("interval", _INTERVAL)),
        _seconds(text.get("timeout", _TIMEOUT)),
        int(text.get("retries", _RETRIES)),
    )


def _seconds(text: str) -> float:
    return float(text[:-1]) * _SECONDS[text[-1]]
