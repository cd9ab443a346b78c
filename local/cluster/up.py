"""Start the production shape of docker-compose.yaml as processes on this machine, and print its addresses.

Where a Prometheus can be had, one scrapes the metrics, with the alert rules of this repository.

A cluster begins empty: what the last one left below `.run/cluster` is removed. Another directory is used only if it is
empty or had a cluster before. Nothing is copied or deleted before you trigger a DAG.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console

from include.tiering.units import GIB
from local import processes
from local.cluster.assembly import CA_VARIABLE, Assembled, assemble
from local.cluster.cluster import stop
from local.cluster.host import ForeignDirectoryError, State
from local.cluster.monitored import start_prometheus
from local.cluster.prometheus import ALERTS, Prometheus
from local.cluster.scrape import Endpoint, token_file
from local.cluster.secret_files import AUTHORITY
from local.layout import ROOT

DEFAULT_HOME = ROOT / ".run" / "cluster"
_MEMORY_GIB: Final = 6


def needs_sentence(minutes: int, what: str) -> str:
    """Return what a cluster takes, as measured on two idle cores, beside what this machine has."""
    available = psutil.virtual_memory().available / GIB
    return (
        f"needs about {minutes} minutes {what} on two idle cores (here: {os.cpu_count()}),"
        f" and {_MEMORY_GIB} GiB of memory (free here: {available:.0f} GiB)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.cluster.up", description=__doc__)
    parser.add_argument("--home", type=Path, default=DEFAULT_HOME, help="keep everything below this directory")
    home = parser.parse_args().home.resolve()
    console = Console(highlight=False)
    say = partial(console.print, soft_wrap=True)
    state = State(home)
    if processes.recorded(state.pid_files):
        console.print(f"a cluster is running already: make cluster-down stops it; its logs are in {state.logs}")
        return 0
    console.print(needs_sentence(2, "to start"), soft_wrap=True)
    try:
        # `home` has no links any more: if DEFAULT_HOME is a link to another place, that place needs the marker.
        state.clear(is_own=home == DEFAULT_HOME)
    except ForeignDirectoryError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    try:
        assembled = assemble(home, say=say)
        assembled.cluster.start()
        server = start_prometheus(assembled, say)
    except RuntimeError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        stop(state, console.print)
        return 1
    _say_where(console, state, assembled, server)
    return 0


def _say_where(console: Console, state: State, assembled: Assembled, server: Prometheus | None) -> None:
    host = assembled.cluster.host
    shown = {
        "Airflow": assembled.base_url,
        "user": f"admin, password in {state.secrets / 'airflow_admin_password'}",
        "Spark": f"http://{host.addresses['spark-master']}:8080",
        "Kafka": f"none: {assembled.no_broker}" if assembled.no_broker else assembled.bootstrap_servers,
        "metrics": f"http://{Endpoint.of(assembled.cluster).address}/metrics, token in {token_file(state)}",
        "Prometheus": "none" if server is None else f"http://{server.address}, with {ALERTS.name}",
        "settings": f"export TIERING_CONFIG={state.settings}   (for ./tiering)",
        "authority": f"export {CA_VARIABLE}={state.secrets / AUTHORITY}   (for ./tiering)",
        "logs": str(state.logs),
        "stop": "make cluster-down",
    }
    for name, value in shown.items():
        console.print(f"{name:<11}{value}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
