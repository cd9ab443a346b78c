"""Airflow for tests: its database, a deployment that DAGs and operators use, and a platform that runs."""

import functools
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.copying.run_scope import RunScope
from include.tiering.settings import load_settings
from local.airflow_home import platform_environment
from local.assembly import assemble
from local.class_archive import class_archive
from local.java import java_environment
from local.layout import ROOT, Layout
from local.platform import Platform, stop
from local.ports import free_port
from local.runs import wait_for_dag
from local.secrets_store import ADMIN, OPERATOR, READER, password_of, write_private
from local.tiering_config import CONFIG_VARIABLE
from tests.doubles.broker_data import broker_data
from tests.doubles.partial import Partial

# Airflow for tests: its database, and a deployment of the library on the bundled log dirs that DAGs and operators
# use. `tests/conftest.py` gives every run an AIRFLOW_HOME of its own before anything imports airflow.

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
            app.copying.plan(run_id, scope=RunScope(topics))
            app.copying.run_batch(run_id, f"{run_id}/0")

    def expires(self, *topics: str, retention_bytes: str | None = "0") -> None:
        """Set what the topics keep, by default nothing; None removes their own value."""
        with self.open() as app:
            for topic in topics:
                entity = ConfigEntity(EntityType.TOPICS, topic)
                app.configs.alter(entity, {"retention.bytes": retention_bytes}, author="test")


class TaskInstance(Partial):
    """Keeps what tasks push, whichever they are, and returns it."""

    def __init__(self, try_number: int = 1, /, **pushed: Any) -> None:
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


# The platform of `make up` over log dirs of real brokers, for as long as a test needs it.

COPY = "tiering_copy"
EXPIRATION = "tiering_expiration"
SIZES = "tiering_remote_log_sizes"
WAIT_SECONDS: Final = 1800.0
"""For a run of a DAG, however busy the machine is."""

# Between two tasks the scheduler sleeps for a second unless it is told otherwise.
_QUICK: Final = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3"}
# Whatever time of the day it is, runs begin when a test or a copy asks for them.
NOTHING_MORE: Final[Mapping[str, str]] = MappingProxyType({})
_WHEN_ASKED: Final = {f"AIRFLOW__TIERING__{name}_SCHEDULE": "" for name in ("AUDIT", "QUALITY", "SIZES")}


@dataclass(frozen=True, slots=True)
class RunningPlatform:
    """`api` is the administrator's."""

    platform: Platform
    layout: Layout
    api: AirflowApi

    @property
    def config(self) -> Path:
        """The library's settings, but for those that lead to Airflow."""
        return self.layout.tiering_toml

    def library(self) -> AbstractContextManager[App]:
        """On the platform's own settings."""
        return open_app(load_settings(environ=self.platform.environment))

    def api_of(self, username: str) -> AirflowApi:
        """Airflow as one of its users meets it. Close it after use."""
        login = Login(username, password_of(self.layout, username))
        return AirflowApi(self.platform.base_url, login, timeout_seconds=WAIT_SECONDS)

    def may_answer(self, run_id: str, *, asked: int = 1) -> bool:
        """An answer that comes before the scheduler has seen this counts as a failure of the process that asked.

        `asked` is how often the run has asked by now: once, and once more each time that its question is cleared.
        """
        log = (self.layout.component_logs / "scheduler.log").read_text(errors="replace")
        seen = [line for line in log.splitlines() if "TaskInstance Finished" in line and run_id in line]
        return sum("task_id=approval" in line and "state=awaiting_input" in line for line in seen) >= asked

    def command(self, *arguments: str) -> str:
        """What `./tiering ARGUMENTS` prints; it must succeed."""
        command = [str(ROOT / "tiering"), *arguments]
        environment = dict(self.platform.environment)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def running_platform(
    directory: Path,
    brokers: Path,
    settings: str = "",
    *,
    environment: Mapping[str, str] = NOTHING_MORE,
    users: Mapping[str, str] = NOTHING_MORE,
) -> AbstractContextManager[RunningPlatform]:
    """Started below `directory`, its DAGs known; everything has ended when the context ends.

    `brokers` holds `broker-1` and `broker-2`; `settings` are more lines of the settings file, `users` more users of
    Airflow with their roles.
    """
    layout = Layout.below(directory)
    log_dirs = "".join(f"[[log_dirs]]\nbroker_id = {n}\npath = '{brokers / f'broker-{n}'}'\n" for n in (1, 2))
    return platform_with(
        directory,
        "topics.include = ['*']\n"
        f"remote_storage.url = 'file://{layout.remote_storage}'\n"
        f"metadata.url = 'sqlite:///{layout.metadata_database}'\n{settings}\n{log_dirs}",
        environment=environment,
        users=users,
    )


@contextmanager
def platform_with(
    directory: Path,
    settings: str,
    *,
    environment: Mapping[str, str] = NOTHING_MORE,
    users: Mapping[str, str] = NOTHING_MORE,
) -> Iterator[RunningPlatform]:
    """The same with a settings file of one's own, all of its text."""
    layout = Layout.below(directory)
    layout.state.mkdir()
    layout.tiering_toml.write_text(settings)
    everything = {CONFIG_VARIABLE: str(layout.tiering_toml), **_QUICK, **_WHEN_ASKED, **environment}
    if users:
        write_private(layout.passwords, json.dumps({name: f"password of {name}" for name in users}))
        roles = {ADMIN: "admin", READER: "viewer", OPERATOR: "op", **users}
        everything["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] = ",".join(f"{n}:{role}" for n, role in roles.items())
    platform = assemble(layout, everything, port=free_port(), say=print)
    try:
        platform.set_up()
        platform.start()
        login = Login(ADMIN, password_of(layout, ADMIN))
        with AirflowApi(platform.base_url, login, timeout_seconds=WAIT_SECONDS) as api:
            for dag_id in (COPY, EXPIRATION, SIZES):
                wait_for_dag(api, dag_id, seconds=WAIT_SECONDS)
            yield RunningPlatform(platform, layout, api)
    finally:
        stop(layout, print)
