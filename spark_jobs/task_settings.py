"""Settings travel from the driver to its tasks inside of the function that the tasks run.

A task may run on another host, whose environment has neither an address nor a login. The driver reads its environment
and its settings file once, and Spark sends what it read with the pickled function. Neither Spark's configuration nor
the arguments of a process hold any of it, and Spark writes no function to its event log, its pages or its logs. A task
passes the settings to the library, and never puts them into the environment of its process, which Spark uses again for
tasks of others. So all tasks of a job use the settings of its driver, whatever their own host has.

Spark encrypts what it sends between hosts only if `spark.authenticate` and `spark.network.crypto.enabled` are on, and
what it may write to a disk only with `spark.io.encryption.enabled`, which jobs of a local master have. A Spark Connect
server is another matter: at the log level INFO it writes whole requests to its log, with the functions in them
(`require_silent_server`).
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App

NOT_FOR_JOBS: Final = ("TIERING_AIRFLOW__", "TIERING_METADATA_TOPIC__")
"""Prefixes of variables that no job needs: Airflow's API, and the publisher of metadata records."""

_PREFIX: Final = "TIERING_"
_CONFIG: Final = "TIERING_CONFIG"
_HOMES: Final = ("HOME", "XDG_STATE_HOME")
"""The default of `metadata.url` is below one of these."""


class TaskSettings:
    """What a driver read, as `TIERING_...` variables. It can be pickled, and its text has no values."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = {name: text for name, text in variables.items() if not name.startswith(NOT_FOR_JOBS)}

    @classmethod
    def of_driver(cls, config: Path | None = None) -> Self:
        """Read the settings file, if `config` or `TIERING_CONFIG` names one, and the environment of this process.

        Without a file the values are checked where `open_app` is called, so that this process imports no settings.

        Raises:
            SettingError: the file cannot be used, or a value beside it is not accepted.
        """
        if config is not None or os.environ.get(_CONFIG):
            from include.tiering.settings import load_settings, to_environment

            return cls(to_environment(load_settings(config)))
        return cls({name: text for name, text in os.environ.items() if name.startswith(_PREFIX) or name in _HOMES})

    @classmethod
    def of_app(cls, app: "App") -> Self:
        """Return the settings with which the driver has opened the library."""
        from include.tiering.settings import to_environment

        return cls(to_environment(app.settings))

    def open_app(self) -> "AbstractContextManager[App]":
        """Open the library with these settings; it is closed when the context ends."""
        from include.tiering.app import open_app
        from include.tiering.settings import load_settings

        return open_app(load_settings(environ=self._variables))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._variables)} variables)"


ReadConf = Callable[[str, str | None], str | None]
"""Returns the value of a key of Spark's configuration; without a value, the second argument."""


_SILENT: Final = frozenset({"WARN", "ERROR", "FATAL", "OFF"})


def require_silent_server(conf: ReadConf) -> None:
    """Check that a Spark Connect server does not log what it is sent. `conf` reads the configuration of its session.

    Raises:
        SettingError: its `spark.log.level` is not set, or is one at which it logs requests.
    """
    level = conf("spark.log.level", None)
    if str(level).upper() not in _SILENT:
        raise SettingError(
            f"spark.log.level of the Spark Connect server is {level or 'not set'}: at INFO it writes requests to its"
            " log, and with them the settings of this job; start the server with spark.log.level=WARN"
        )


def require_encrypted_connection(remote: str) -> None:
    """Check that settings reach a Spark Connect server by TLS, or stay on this host. `remote` is SPARK_REMOTE.

    Raises:
        SettingError: its host is not a loopback address, and `use_ssl=true` is missing. The text has no value, as a
            token may be in it.
    """
    address, *options = remote.split(";")
    if remote.startswith("local") or _is_loopback(address) or "use_ssl=true" in (each.lower() for each in options):
        return
    raise SettingError(
        "SPARK_REMOTE names another host without TLS, and this job would send its settings with their secrets in clear "
        "text: add /;use_ssl=true, or use a tunnel from a loopback address"
    )


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def unencrypted_words(conf: ReadConf) -> str | None:
    """Return what to switch on so that settings are not sent in clear text; None if all is on, or nothing is sent."""
    master = conf("spark.master", "") or ""
    needed = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
    off = [name for name in needed if str(conf(name, "false")).lower() != "true"]
    if master.startswith("local") or not off:
        return None
    return (
        f"Spark sends the settings of this job to {master} with their secrets, and {', '.join(off)} "
        f"{'is' if len(off) == 1 else 'are'} not true: whoever can read the network between its hosts, or the disks of "
        'its executors, can read them. docs/airflow.md, "A Spark cluster", says how to switch it on'
    )
