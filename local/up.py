"""Start the platform on this machine and print its addresses.

Without settings of your own (TIERING_CONFIG or TIERING_LOG_DIRS) it uses the bundled log dirs of two brokers. Nothing
is copied before you trigger a copy, unless you set --copy-schedule. Nothing is deleted before you trigger a deletion.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from local.airflow_home import configured_base_url
from local.assembly import assemble
from local.layout import Layout
from local.platform import stop
from local.ports import free_port
from local.processes import recorded
from local.secrets_store import ADMIN
from local.tiering_config import CONFIG_VARIABLE, sample_settings

DEFAULT_PORT = 8080
_METRICS_PORT = 9464


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.up", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port on 127.0.0.1 (if taken: a free port)")
    parser.add_argument("--home", type=Path, help="keep everything below this directory instead of the checkout")
    parser.add_argument(
        "--copy-schedule", default="", help="cron expression of tiering_copy (default: only when triggered)"
    )
    arguments = parser.parse_args()
    console = Console(highlight=False)
    layout = Layout.below(arguments.home.resolve()) if arguments.home else Layout.of_checkout()
    if recorded(layout.components):
        console.print("the platform is running already")
        return _say_where(console, layout, configured_base_url(layout))
    own = {name: value for name, value in os.environ.items() if name.startswith("TIERING_")}
    has_settings = bool({CONFIG_VARIABLE, "TIERING_LOG_DIRS"} & own.keys())
    port = free_port(arguments.port)
    app = own if has_settings else {**own, **sample_settings(layout, airflow_port=port)}
    try:
        platform = assemble(
            layout,
            app,
            port=port,
            say=partial(console.print, soft_wrap=True),
            copy_schedule=arguments.copy_schedule,
            metrics_port=free_port(_METRICS_PORT),
        )
        platform.set_up()
        platform.start()
    except RuntimeError as error:
        console.print(str(error), style="red", markup=False)
        stop(layout, console.print)
        return 1
    return _say_where(console, layout, platform.base_url)


def _say_where(console: Console, layout: Layout, base_url: str) -> int:
    shown = {"address": base_url, "user": ADMIN, "password": f"in {layout.passwords}"}
    shown["page"] = f"{base_url}/plugin/tiering   (Tiering in the navigation)"
    if layout.metrics_address.exists():
        shown["metrics"] = f"http://{layout.metrics_address.read_text()}/metrics"
    if layout.tiering_toml.exists():
        shown["settings"] = f"export {CONFIG_VARIABLE}={layout.tiering_toml}   (for ./tiering)"
    shown["stop"] = "make down"
    for name, value in shown.items():
        console.print(f"{name:<10}{value}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
