"""Prepare a platform: find or install Java, build the class archive, write airflow.cfg, set up the environment."""

from collections.abc import Callable, Mapping

from local.airflow_home import platform_environment, write_airflow_home
from local.class_archive import class_archive
from local.java import java_environment
from local.layout import Layout
from local.platform import Platform
from local.ports import LOOPBACK, free_port


def assemble(
    layout: Layout,
    app: Mapping[str, str],
    *,
    port: int,
    say: Callable[[str], None],
    copy_schedule: str = "",
    metrics_port: int | None = None,
) -> Platform:
    """Return a platform that is ready for set-up.

    Args:
        layout: where its files are.
        app: variables of the environment that configure this project.
        port: of the UI of Airflow, on loopback.
        say: called with one line before each wait.
        copy_schedule: a cron expression; with an empty one, copies run only when triggered.
        metrics_port: of the metrics, on loopback; None is a random free one, which two platforms that start at the
            same moment do not both take.

    Raises:
        RuntimeError: there is no usable Java, and none could be installed.
    """
    base_url = f"http://{LOOPBACK}:{port}"
    airflow = {"TIERING_AIRFLOW__URL": base_url, "TIERING_AIRFLOW__LOGIN_FILE": str(layout.operator_login)}
    environment = platform_environment(layout, java_environment(), {**app, **airflow})
    write_airflow_home(
        layout,
        port=port,
        copy_schedule=copy_schedule,
        class_archive=class_archive(environment, say),
    )
    return Platform(layout, environment, base_url, metrics_port or free_port(), say)
