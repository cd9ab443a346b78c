"""The main job on the bundled log dirs of two real brokers: a real scheduler, real Spark jobs, both DAGs.

Starts a platform of its own, triggers `tiering_copy`, waits for it and for the size run that it wakes, reads every
copied segment back and compares it byte for byte with the broker's file, prints a table, stops all it started.
Exit code 0 only if all of it held.
"""

import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from include.tiering.errors import TieringError
from include.tiering.pools.airflow_api import AirflowApi, Login
from include.tiering.settings import load_settings
from include.tiering.wiring import open_tiering
from local.assembly import assemble
from local.layout import Layout
from local.outcome import outcomes, table
from local.platform import stop
from local.ports import free_port
from local.runs import DagRun, errors_of, trigger, wait_for_dag, wait_for_run
from local.secrets_store import ADMIN, password_of
from local.tiering_config import sample_log_dirs, sample_settings

_COPY_DAG: Final = "tiering_copy"
_SIZES_DAG: Final = "tiering_remote_log_sizes"
_TABLE_WIDTH: Final = 120
_DAG_SECONDS: Final = 60.0
_COPY_SECONDS: Final = 300.0
_SIZES_SECONDS: Final = 120.0


def main() -> int:
    console = Console(highlight=False)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    console.width = max(console.width, _TABLE_WIDTH)
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="tiering-demo-"))
    layout = Layout.below(directory)

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:5.0f} s[/dim]  {line}", soft_wrap=True)

    held = False
    try:
        held = _demo(console, layout, say)
    except (RuntimeError, TieringError) as error:
        console.print(str(error), style="red", markup=False)
    except KeyboardInterrupt:
        console.print("interrupted", style="red")
    finally:
        stop(layout, say)
        if held:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            console.print(f"kept for a look: {directory}")
    console.print(f"{'all of it held' if held else 'NOT all of it held'}, {time.monotonic() - started:.0f} s")
    return 0 if held else 1


def _demo(console: Console, layout: Layout, say: Callable[[str], None]) -> bool:
    port = free_port()
    platform = assemble(layout, sample_settings(layout, airflow_port=port), port=port, say=say)
    platform.set_up()
    platform.start()
    with AirflowApi(platform.base_url, Login(ADMIN, password_of(layout, ADMIN))) as api:
        runs = _run_both_dags(api, say)
    for run in runs:
        for line in errors_of(layout.airflow_home / "logs", run):
            console.print(line, style="red", markup=False, soft_wrap=True)
    say("waiting for every copied segment to be read back and compared with the broker's file")
    with open_tiering(load_settings(layout.tiering_toml)) as tiering:
        found = outcomes(tiering, sample_log_dirs(layout), layout.state / "read-back")
    console.print(table(found))
    for difference in (line for outcome in found for line in outcome.differences):
        console.print(difference, style="red", markup=False, soft_wrap=True)
    copied = sum(len(outcome.rows) for outcome in found)
    return copied > 0 and all(run.state == "success" for run in runs) and all(outcome.held for outcome in found)


def _run_both_dags(api: AirflowApi, say: Callable[[str], None]) -> list[DagRun]:
    say("waiting for Airflow to know both DAGs")
    for dag_id in (_COPY_DAG, _SIZES_DAG):
        wait_for_dag(api, dag_id, seconds=_DAG_SECONDS)
    run_id = trigger(api, _COPY_DAG, {})
    say(f"waiting for {_COPY_DAG}: plan, two Spark jobs at a time, quality gate (about a minute)")
    copied = wait_for_run(api, _COPY_DAG, run_id, seconds=_COPY_SECONDS, on_change=lambda line: say(f"  {line}"))
    if copied.state != "success":
        return [copied]
    say(f"waiting for {_SIZES_DAG}, which the copy woke")
    sized = wait_for_run(api, _SIZES_DAG, None, seconds=_SIZES_SECONDS, on_change=lambda line: say(f"  {line}"))
    return [copied, sized]


if __name__ == "__main__":
    sys.exit(main())
