"""Every setting: its name, type, unit, default and sentence; where its value came from; how it is loaded.

    default  <  TOML file  <  overrides (Airflow connections)  <  TIERING_... environment  <  dynamic configs

`catalogue`, `connections`, `operational`, `remote_storage` and `use_cases` declare, in `fields`. `load` reads the
places that values come from and joins them. `catalogue` lists and names the settings, and lays over them what was
changed while jobs run.
No other module of the project reads the environment.
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
