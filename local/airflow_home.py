"""airflow.cfg of a local platform, and the environment of its processes.

Secrets are in airflow.cfg (mode 0600), not in the environment: each task inherits that, and so does all that it starts.
"""

import configparser
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local.layout import ROOT, VIRTUAL_ENVIRONMENT, Layout
from local.processes import PLATFORM_MARK
from local.secrets_store import ADMIN, OPERATOR, READER, AirflowSecrets, ensure_passwords, write_private

_NOT_INHERITED: Final = ("AIRFLOW", "SPARK_", "PYTHONDONTWRITEBYTECODE", "PYSPARK_", "TMPDIR")
_PARSE_SECONDS: Final = "300"
"""Time limit in seconds for parsing a DAG file. Parsing takes one second on an idle core, but cores may be busy."""


def write_airflow_home(layout: Layout, *, port: int, copy_schedule: str, class_archive: Path | None) -> None:
    """Write the files that Airflow needs before its first start. A later call keeps secrets and passwords."""
    layout.airflow_home.mkdir(parents=True, exist_ok=True)
    layout.airflow_home.chmod(0o700)
    ensure_passwords(layout)
    sections = _sections(layout, port) | {
        "tiering": {
            "copy_schedule": copy_schedule,
            "expiration_schedule": "",
            "api_login_file": str(layout.api_login),
            "work_dir": str(layout.work_dir),
            "spark_class_archive": str(class_archive or ""),
        }
    }
    parser = configparser.RawConfigParser()
    parser.read_dict(sections)
    text = io.StringIO()
    parser.write(text)
    write_private(layout.airflow_cfg, text.getvalue())


def configured_base_url(layout: Layout) -> str:
    """Return the URL in the platform's airflow.cfg."""
    parser = configparser.RawConfigParser()
    parser.read(layout.airflow_cfg)
    return parser["api"]["base_url"]


def _sections(layout: Layout, port: int) -> dict[str, dict[str, str]]:
    secrets = AirflowSecrets.of(layout)
    return {
        "core": {
            "executor": "LocalExecutor",
            "parallelism": "4",
            "load_examples": "False",
            "dags_folder": str(ROOT / "dags"),
            "plugins_folder": str(ROOT / "plugins"),
            "dags_are_paused_at_creation": "False",
            "fernet_key": secrets.fernet_key,
            "simple_auth_manager_users": f"{ADMIN}:admin,{READER}:viewer,{OPERATOR}:op",
            "simple_auth_manager_passwords_file": str(layout.passwords),
            "dagbag_import_timeout": _PARSE_SECONDS,
        },
        "database": {
            "sql_alchemy_conn": f"sqlite:///{layout.airflow_home}/airflow.db",
            "sql_alchemy_connect_args": "local.patient_sqlite.CONNECT_ARGS",
            "sql_alchemy_connect_args_async": "local.patient_sqlite.CONNECT_ARGS",
        },
        "api": {
            "host": "127.0.0.1",
            "port": str(port),
            "base_url": f"http://127.0.0.1:{port}",
            "workers": "1",
            "secret_key": secrets.api_secret_key,
            # A change of a pool's size reads `parallelism` through the API. Sensitive values stay masked.
            "expose_config": "True",
        },
        "api_auth": {"jwt_secret": secrets.jwt_secret},
        "dag_processor": {
            "dag_file_processor_timeout": _PARSE_SECONDS,
            "parsing_processes": "1",
            "refresh_interval": "30",
            "min_file_process_interval": "30",
            "print_stats_interval": "0",
        },
        # If cores are busy, a task must not count the API server as lost: the task would be killed.
        "workers": {"max_failed_heartbeats": "20", "execution_api_timeout": "60"},
        "logging": {"base_log_folder": str(layout.airflow_home / "logs")},
        "usage_data_collection": {"enabled": "False"},
    }


def platform_environment(layout: Layout, java: Mapping[str, str], app: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the platform's processes; `app` are the `TIERING_...` variables of the library."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_NOT_INHERITED) and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    binaries = VIRTUAL_ENVIRONMENT / "bin"
    return {
        **inherited,
        **java,
        **app,
        "PATH": f"{binaries}:{inherited.get('PATH', '/usr/bin:/bin')}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(binaries / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        PLATFORM_MARK: str(layout.airflow_home),
        "AIRFLOW_HOME": str(layout.airflow_home),
        "AIRFLOW_CONN_TIERING_SPARK": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }
