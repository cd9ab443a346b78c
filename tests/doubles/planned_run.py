"""A deployment of its own over the bundled log directories, with one planned run."""

from pathlib import Path
from typing import Final

from include.tiering.app import open_app
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.broker_data import broker_data

RUN_ID: Final = "run-1"


def planned_run(directory: Path, *, topics: str = '["*"]') -> Path:
    """Set up a SQLite database and a file store below `directory`, plan one run; returns the settings file."""
    brokers = broker_data("public") / "stopped"
    config = directory / "tiering.toml"
    config.write_text(
        f"""log_dirs = [
  {{broker_id = 1, path = "{brokers / "broker-1"}"}},
  {{broker_id = 2, path = "{brokers / "broker-2"}"}},
]
[metadata]
url = "sqlite:///{directory / "metadata.sqlite"}"
[remote_storage]
url = "{(directory / "store").as_uri()}"
[topics]
include = {topics}
"""
    )
    with open_app(settings_of(config)) as app:
        app.set_up.migrate()
        app.copying.plan(RUN_ID)
    return config


def settings_of(config: Path) -> TieringSettings:
    """Nothing of this process's environment."""
    return load_settings(config, environ={"HOME": str(config.parent)})
