"""A cluster that one program starts for itself, and stops at its end."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.settings import load_settings
from local.cluster.assembly import CA_VARIABLE, Assembled, assemble
from local.cluster.cluster import stop
from local.cluster.host import State
from local.cluster.secret_files import AUTHORITY
from local.own_directory import OwnDirectory


def run_cluster(own: OwnDirectory, program: Callable[[Assembled], None]) -> None:
    """Assemble a cluster in the directory, run the program, which starts it, and stop it."""
    state = State(own.directory)
    own.run(lambda: program(assemble(own.directory, say=own.say)), lambda: stop(state, own.say))


@contextmanager
def logged_in(assembled: Assembled) -> Iterator[tuple[AirflowApi, App]]:
    """Give Airflow's API, as its administrator, and the library with the settings of a cluster that was started."""
    state = assembled.cluster.state
    os.environ[CA_VARIABLE] = str(state.secrets / AUTHORITY)
    password = (state.secrets / "airflow_admin_password").read_text()
    with (
        AirflowApi(assembled.base_url, Login("admin", password)) as api,
        open_app(load_settings(state.settings)) as app,
    ):
        yield api, app
