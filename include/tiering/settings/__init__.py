"""All settings: name, type, unit, default and description; the origin of each value; loading.

    default  <  TOML file  <  overrides (Airflow connections)  <  TIERING_... environment  <  dynamic configs

`catalogue`, `connections`, `operational`, `remote_storage` and `use_cases` declare settings with the functions of
`fields`. `load` reads the sources of values and merges them. `catalogue` lists the settings, and applies dynamic
configs to loaded settings. No other module of the project reads the environment.
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
