"""Put a platform together: Java, class archive, airflow.cfg, environment."""

from collections.abc import Callable, Mapping

from local.airflow_home import platform_environment, write_airflow_home
from local.class_archive import class_archive
from local.java import java_environment
from local.layout import Layout
from local.platform import Platform
from local.ports import LOOPBACK


def assemble(
    layout: Layout,
    tiering: Mapping[str, str],
    *,
    port: int,
    say: Callable[[str], None],
    paused_at_creation: bool = True,
    copy_schedule: str = "*/10 * * * *",
) -> Platform:
    """A platform that is ready to be set up. Raises RuntimeError without a usable Java."""
    environment = platform_environment(layout, java_environment(), tiering)
    write_airflow_home(
        layout,
        port=port,
        paused_at_creation=paused_at_creation,
        copy_schedule=copy_schedule,
        class_archive=class_archive(environment, say),
    )
    return Platform(layout, environment, f"http://{LOOPBACK}:{port}", say)
