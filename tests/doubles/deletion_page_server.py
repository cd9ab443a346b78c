"""The plugin's application where Airflow mounts it, for a web server: `uvicorn --factory ...:application`."""

from typing import Any

from fastapi import FastAPI

from plugins.tiering_airflow.web.expiration import DeletionPlanPlugin


def application() -> FastAPI:
    from airflow.api_fastapi.app import create_auth_manager

    create_auth_manager().init()
    mounted: Any
    (mounted,) = DeletionPlanPlugin.fastapi_apps
    airflow = FastAPI()
    airflow.mount(mounted["url_prefix"], mounted["app"])
    return airflow
