"""A plugin where Airflow mounts it, for a web server: `uvicorn --factory tests.doubles.plugin_server:NAME`."""

from typing import Any

from fastapi import FastAPI

from plugins.tiering_airflow.web.expiration import DeletionPlanPlugin
from plugins.tiering_airflow.web.page import TieringPagePlugin


def deletion_plans() -> FastAPI:
    return _serving(DeletionPlanPlugin)


def tiering_page() -> FastAPI:
    return _serving(TieringPagePlugin)


def _serving(plugin: Any) -> FastAPI:
    from airflow.api_fastapi.app import create_auth_manager

    create_auth_manager().init()
    (mounted,) = plugin.fastapi_apps
    airflow = FastAPI()
    airflow.mount(mounted["url_prefix"], mounted["app"])
    return airflow
