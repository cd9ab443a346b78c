"""Start the platform on this machine and say where it is.

Without settings of your own (TIERING_CONFIG or TIERING_LOG_DIRS) it works on the bundled log dirs of two brokers.
DAGs that copy start paused: nothing is copied before somebody asks for it.
"""

import argparse
import os
import sys

from rich.console import Console
from rich.table import Table

from local.airflow_home import configured_base_url
from local.assembly import assemble
from local.layout import ROOT, Layout
from local.platform import PlatformError
from local.ports import free_port
from local.processes import recorded
from local.secrets_store import ADMIN
from local.tiering_config import CONFIG_VARIABLE, sample_settings

DEFAULT_PORT = 8080


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.up", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port on 127.0.0.1 (another one if it is taken)")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    layout = Layout.of_checkout()
    if recorded(layout.components):
        console.print("it is running already")
        return _say_where(console, layout, configured_base_url(layout))
    own = {name: value for name, value in os.environ.items() if name.startswith("TIERING_")}
    tiering = own if {CONFIG_VARIABLE, "TIERING_LOG_DIRS"} & own.keys() else {**own, **sample_settings(layout)}
    try:
        platform = assemble(layout, tiering, port=free_port(arguments.port), say=console.print)
        platform.set_up()
        platform.start()
    except PlatformError as error:
        console.print(f"[red]{error}[/red]", markup=True)
        return 1
    return _say_where(console, layout, platform.base_url)


def _say_where(console: Console, layout: Layout, base_url: str) -> int:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("address", base_url)
    facts.add_row("user", ADMIN)
    facts.add_row("password", f"in {layout.passwords.relative_to(ROOT)}")
    if layout.tiering_toml.exists():
        facts.add_row("settings", f"export {CONFIG_VARIABLE}={layout.tiering_toml}   (for ./tiering)")
    facts.add_row("stop", "make down")
    console.print(facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
