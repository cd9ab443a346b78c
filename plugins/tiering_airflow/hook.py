"""The hook through which all Airflow code opens the library."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from plugins.tiering_airflow import configuration

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.settings import TieringSettings

REMOTE_STORAGE_CONNECTION: Final = "tiering_remote_storage"
METADATA_CONNECTION: Final = "tiering_metadata"


class TieringHook(BaseHook):
    """Opens the library with settings from the environment (`TIERING_...`), Airflow connections and the settings file.

    The environment overrides the connections, and the connections override the file.

    | connection | field | setting |
    |---|---|---|
    | tiering_remote_storage | extra with the name of a setting | `remote_storage.` + the same name |
    | | login, password | `remote_storage.access_key_id`, `remote_storage.secret_access_key` |
    | tiering_metadata | extra `url`, else the connection as a URL | `metadata.url` |

    Both connections are optional. Extras with other names, such as those of Airflow's own providers, are ignored. If
    the settings have neither a token nor a login file for Airflow's API, both its URL and its login file are taken from
    airflow.cfg, even if the settings have a URL. The library is imported when it is first needed, so that DAG files are
    parsed fast.
    """

    def settings(self) -> "TieringSettings":
        """Load the settings. Raises SettingError if one of them is not accepted."""
        from include.tiering.settings import load_settings

        return _with_airflow(load_settings(overrides=connection_settings()))

    def open(self) -> "AbstractContextManager[App]":
        """Open the library; it is closed when the context ends. Raises SettingError as `settings`."""
        from include.tiering.app import open_app

        return open_app(self.settings())

    def job_environment(self) -> dict[str, str]:
        """Return `TIERING_...` variables that give the driver of a job the same settings. They contain secrets.

        The driver passes them on to its tasks, see `spark_jobs/task_settings.py`. The
        settings of Airflow's API and of the publisher of metadata records are left out, as no job needs them.
        """
        from include.tiering.settings import to_environment
        from spark_jobs.task_settings import NOT_FOR_JOBS

        variables = to_environment(self.settings())
        return {name: value for name, value in variables.items() if not name.startswith(NOT_FOR_JOBS)}


def connection_settings() -> dict[str, Any]:
    """Return the settings in Airflow's connections, by dotted name; empty if there are no connections."""
    return {**_remote_storage(_connection(REMOTE_STORAGE_CONNECTION)), **_metadata(_connection(METADATA_CONNECTION))}


def _with_airflow(settings: "TieringSettings") -> "TieringSettings":
    """Set this Airflow's own URL and the login file in its configuration, if the settings have no login."""
    airflow = settings.airflow
    if airflow.token is not None or airflow.login_file is not None:
        return settings
    own = {"url": configuration.api_base_url(), "login_file": configuration.api_login_file()}
    known = settings.model_copy(update={"airflow": airflow.model_copy(update=own)})
    return known.with_origins({f"airflow.{name}": "airflow.cfg" for name in own})


def _remote_storage(connection: Connection | None) -> dict[str, Any]:
    if connection is None:
        return {}
    from include.tiering.settings import RemoteStorageSettings

    extra: Mapping[str, Any] = connection.extra_dejson
    values = {name: extra[name] for name in RemoteStorageSettings.model_fields if extra.get(name) not in (None, "")}
    login = {"access_key_id": connection.login, "secret_access_key": connection.password}
    values |= {name: value for name, value in login.items() if value}
    return {f"remote_storage.{name}": value for name, value in values.items()}


def _metadata(connection: Connection | None) -> dict[str, Any]:
    if connection is None:
        return {}
    return {"metadata.url": connection.extra_dejson.get("url") or _sqlalchemy_url(connection)}


def _sqlalchemy_url(connection: Connection) -> str:
    """Return the connection as a URL for SQLAlchemy, which needs the driver's name; Airflow's scheme is `postgres`."""
    _, separator, rest = connection.get_uri().partition("://")
    return f"postgresql+psycopg{separator}{rest}"


def _connection(connection_id: str) -> Connection | None:
    try:
        found: Connection = Connection.get(connection_id)
    except AirflowNotFoundException:
        return None
    return found
