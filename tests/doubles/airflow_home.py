"""Airflow for tests: its database, and a deployment of the library on the bundled log dirs that DAGs and operators use.

`tests/conftest.py` gives every run an AIRFLOW_HOME of its own before anything imports airflow.
"""

import functools
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.settings import load_settings
from local.airflow_home import platform_environment
from local.class_archive import class_archive
from local.java import java_environment
from local.layout import Layout
from tests.doubles.broker_data import broker_data
from tests.doubles.partial import Partial

NOWHERE_ELSE: Final[Mapping[int, str]] = MappingProxyType({})
SPARK_CONNECTION_VARIABLE = "AIRFLOW_CONN_TIERING_SPARK"


@functools.cache
def airflow_database() -> Path:
    """Airflow's SQLite database, created once per process; returns its directory."""
    from airflow.utils.db import initdb

    initdb()
    return Path(os.environ["AIRFLOW_HOME"])


@dataclass(frozen=True, slots=True)
class Deployment:
    """Settings of the library in a TOML file, log dirs that are read only, and a store below `directory`."""

    directory: Path

    @property
    def config(self) -> Path:
        return self.directory / "tiering.toml"

    @property
    def remote(self) -> Path:
        return self.directory / "remote"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which an Airflow process finds this deployment, and Spark in local mode."""
        spark = json.dumps({"conn_type": "spark", "host": "local[1]"})
        return {"TIERING_CONFIG": str(self.config), SPARK_CONNECTION_VARIABLE: spark}

    def open(self) -> AbstractContextManager[App]:
        return open_app(load_settings(self.config))

    def copied(self, *topics: str, run_id: str = "copy") -> None:
        """Copy everything of these topics in one batch."""
        with self.open() as app:
            app.copying.plan(run_id, topics=topics)
            app.copying.run_batch(run_id, f"{run_id}/0")

    def expires(self, *topics: str, retention_bytes: str | None = "0") -> None:
        """Set what the topics keep, by default nothing; None removes their own value."""
        with self.open() as app:
            for topic in topics:
                entity = ConfigEntity(EntityType.TOPICS, topic)
                app.configs.alter(entity, {"retention.bytes": retention_bytes}, author="test")


class TaskInstance(Partial):
    """Keeps what tasks push, whichever they are, and returns it."""

    def __init__(self, try_number: int = 1, **pushed: Any) -> None:
        self.try_number = try_number
        self.pushed = pushed

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.pushed.get(key)


def deployment(
    directory: Path, *, migrated: bool = True, topics: str = '["*"]', placements: Mapping[int, str] = NOWHERE_ELSE
) -> Deployment:
    """Two real brokers' log dirs, a file store and SQLite. `placements`: TOML lines for the log dir of a broker."""
    made = Deployment(directory)
    made.remote.mkdir()
    brokers = broker_data("public") / "stopped"
    log_dirs = "".join(
        f"[[log_dirs]]\nbroker_id = {n}\npath = '{brokers / f'broker-{n}'}'\n{placements.get(n, '')}\n" for n in (1, 2)
    )
    made.config.write_text(
        f"topics.include = {topics}\n"
        f"remote_storage.url = 'file://{made.remote}'\n"
        f"metadata.url = 'sqlite:///{directory / 'metadata.sqlite'}'\n{log_dirs}"
    )
    if migrated:
        with made.open() as app:
            app.set_up.migrate()
    return made


def deployed_for(monkeypatch: pytest.MonkeyPatch, made: Deployment, *, tasks: bool = False) -> Deployment:
    """Let this process find the deployment as an operator does or, with `tasks`, as the tasks of a platform do."""
    for name, value in (task_environment(made) if tasks else made.environment).items():
        monkeypatch.setenv(name, value)
    return made


def task_environment(made: Deployment) -> dict[str, str]:
    """What the tasks of a local platform on this deployment find in their environment; their Spark starts fast."""
    layout = Layout(airflow_database(), made.directory)
    environment = platform_environment(layout, java_environment(), made.environment)
    return {
        **environment,
        "AIRFLOW__TIERING__WORK_DIR": str(made.directory / "work"),
        "AIRFLOW__TIERING__SPARK_CLASS_ARCHIVE": str(class_archive(environment, print) or ""),
    }
