"""All settings: name, type, unit, default and description; the origin of each value; loading.

    default  <  TOML file  <  overrides (Airflow connections)  <  TIERING_... environment  <  dynamic configs

A source overrides the sources to its left. `catalogue`, `connections`, `operational`, `remote_storage` and `use_cases`
declare settings with the classes and functions of `fields`. `load` reads all sources except the dynamic configs, and
merges them. `catalogue` lists the settings, and applies dynamic configs to loaded settings. No other package reads
settings from the environment.
"""

from include.tiering.settings.catalogue import LogDir, MetadataSettings, TieringSettings, TopicsSettings, with_dynamic
from include.tiering.settings.connections import ClusterSettings
from include.tiering.settings.load import load_settings, to_environment
from include.tiering.settings.operational import CopierSettings
from include.tiering.settings.remote_storage import RemoteStorageSettings

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
    "with_dynamic",
]
