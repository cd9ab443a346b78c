"""Every setting: its name, type, unit, default and sentence; where its value came from; how it is loaded.

    default  <  TOML file  <  overrides (Airflow connections)  <  TIERING_... environment

`model` declares, `catalogue` lists and names, `layers` reads the places that values come from, `load` joins them.
No other module of the project reads the environment.
"""

from include.tiering.settings.load import load_settings, to_environment
from include.tiering.settings.model import (
    ClusterSettings,
    CopierSettings,
    LogDir,
    MetadataSettings,
    RemoteStorageSettings,
    TieringSettings,
    TopicsSettings,
)

__all__ = [
    "ClusterSettings",
    "CopierSettings",
    "LogDir",
    "MetadataSettings",
    "RemoteStorageSettings",
    "TieringSettings",
    "TopicsSettings",
    "load_settings",
    "to_environment",
]
