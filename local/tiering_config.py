"""The library's settings of a local platform on the bundled log dirs, as a TOML file that `./tiering` reads too."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local.layout import Layout
from local.ports import LOOPBACK
from local.sample_data import broker_log_dirs, unpack

CONFIG_VARIABLE: Final = "TIERING_CONFIG"


def sample_settings(layout: Layout, *, airflow_port: int) -> dict[str, str]:
    """Unpack log dirs of two brokers, write settings that copy from them; return the variable that names that file."""
    layout.remote_storage.mkdir(parents=True, exist_ok=True)
    layout.tiering_toml.write_text(_toml(layout, sample_log_dirs(layout), f"http://{LOOPBACK}:{airflow_port}"))
    return {CONFIG_VARIABLE: str(layout.tiering_toml)}


def sample_log_dirs(layout: Layout) -> dict[int, Path]:
    """Return the log dirs of two cleanly stopped brokers, by broker id. The first call unpacks them."""
    return broker_log_dirs(unpack("public", layout.sample_log_dirs) / "stopped")


def _toml(layout: Layout, log_dirs: Mapping[int, Path], airflow_url: str) -> str:
    tables = "".join(
        f"\n[[log_dirs]]\nbroker_id = {broker}\npath = {_text(path)}\n" for broker, path in log_dirs.items()
    )
    return (
        "# Written by local/tiering_config.py: the bundled log dirs of two brokers, copied to a directory.\n"
        f'[cluster]\nname = "sample"\n\n[tiering.copier]\nmax.batches = 4\n\n[topics]\ninclude = ["*"]\n\n'
        f"[remote_storage]\nurl = {_text('file://' + str(layout.remote_storage))}\n\n"
        f"[airflow]\nurl = {_text(airflow_url)}\nlogin_file = {_text(layout.operator_login)}\n\n"
        f"[metadata]\nurl = {_text('sqlite:///' + str(layout.metadata_database))}\n{tables}"
    )


def _text(value: object) -> str:
    """Return a TOML basic string; JSON's escapes are a subset of TOML's."""
    return json.dumps(str(value))
