"""The platform of `make up` over log dirs of real brokers, for as long as a test needs it."""

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.pools.airflow_api import AirflowApi, Login
from include.tiering.settings import load_settings
from include.tiering.wiring import Tiering, open_tiering
from local.assembly import assemble
from local.layout import ROOT, Layout
from local.platform import Platform, stop
from local.ports import free_port
from local.runs import wait_for_dag
from local.secrets_store import ADMIN, password_of
from local.tiering_config import CONFIG_VARIABLE

COPY = "tiering_copy"
EXPIRATION = "tiering_expiration"
SIZES = "tiering_remote_log_sizes"
WAIT_SECONDS: Final = 1800.0
"""For a run of a DAG, however busy the machine is."""

# Between two tasks the scheduler sleeps for a second unless it is told otherwise.
_QUICK: Final = {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3"}
# Whatever time of the day it is, runs begin when a test or a copy asks for them.
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

    def library(self) -> AbstractContextManager[Tiering]:
        """On the platform's own settings."""
        return open_tiering(load_settings(environ=self.platform.environment))

    def command(self, *arguments: str) -> str:
        """What `./tiering ARGUMENTS` prints; it must succeed."""
        command = [str(ROOT / "tiering"), *arguments]
        environment = dict(self.platform.environment)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def running_platform(directory: Path, brokers: Path, settings: str = "") -> AbstractContextManager[RunningPlatform]:
    """Started below `directory`, its DAGs known; everything has ended when the context ends.

    `brokers` holds `broker-1` and `broker-2`; `settings` are more lines of the settings file.
    """
    layout = Layout.below(directory)
    log_dirs = "".join(f"[[log_dirs]]\nbroker_id = {n}\npath = '{brokers / f'broker-{n}'}'\n" for n in (1, 2))
    return platform_with(
        directory,
        "topics.include = ['*']\n"
        f"remote_storage.url = 'file://{layout.remote_storage}'\n"
        f"metadata.url = 'sqlite:///{layout.metadata_database}'\n{settings}\n{log_dirs}",
    )


@contextmanager
def platform_with(directory: Path, settings: str) -> Iterator[RunningPlatform]:
    """The same with a settings file of one's own, all of its text."""
    layout = Layout.below(directory)
    layout.state.mkdir()
    layout.tiering_toml.write_text(settings)
    environment = {CONFIG_VARIABLE: str(layout.tiering_toml), **_QUICK, **_WHEN_ASKED}
    platform = assemble(layout, environment, port=free_port(), say=print)
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
