"""The main job on the bundled log dirs of two real brokers: a real scheduler, real Spark jobs, three DAGs.

The demo starts a platform of its own, triggers `tiering_copy`, waits for this run and for the size run that it starts,
reads every copied segment back and compares it byte for byte with the broker's file. Then the demo limits the retention
of one topic, triggers `tiering_expiration`, and compares segments, sizes and objects before and after. It prints
tables, and stops all processes that it started. The exit code is 0 only if all runs and comparisons succeeded.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.settings import load_settings
from include.tiering.units import KIB
from local.assembly import assemble
from local.expiry import faults, holdings, limit_retention
from local.expiry import table as expiry_table
from local.layout import Layout
from local.outcome import outcomes, table
from local.own_directory import OwnDirectory
from local.platform import stop
from local.ports import free_port
from local.runs import errors_of, trigger, wait_for_dag, wait_for_run
from local.secrets_store import ADMIN, password_of
from local.tiering_config import sample_log_dirs, sample_settings

_COPY_DAG: Final = "tiering_copy"
_SIZES_DAG: Final = "tiering_remote_log_sizes"
_EXPIRATION_DAG: Final = "tiering_expiration"
_TABLE_WIDTH: Final = 120
_DAG_SECONDS: Final = 300.0
_COPY_SECONDS: Final = 900.0
_SIZES_SECONDS: Final = 600.0
_EXPIRATION_SECONDS: Final = 600.0
_EXPIRED_TOPIC: Final = "orders"
_RETENTION_BYTES: Final = 64 * KIB


def main() -> int:
    own = OwnDirectory("tiering-demo-", _TABLE_WIDTH)
    layout = Layout.below(own.directory)
    held = False

    def program() -> None:
        nonlocal held
        held = _demo(own.console, layout, own.say)

    own.run(program, lambda: stop(layout, own.say))
    return own.conclude(held=held, words="all checks passed")


def _demo(console: Console, layout: Layout, say: Callable[[str], None]) -> bool:
    port = free_port()
    # By default the size DAG also runs every hour. Without a schedule its newest run is the one that the copy started.
    environment = {**sample_settings(layout, airflow_port=port), "AIRFLOW__TIERING__SIZES_SCHEDULE": ""}
    platform = assemble(layout, environment, port=port, say=say)
    platform.set_up()
    platform.start()
    demo = _Demo(console, layout, say)
    with (
        AirflowApi(platform.base_url, Login(ADMIN, password_of(layout, ADMIN))) as api,
        open_app(load_settings(layout.tiering_toml)) as app,
    ):
        return demo.copies(api, app) and demo.expires(api, app)


@dataclass(frozen=True, slots=True)
class _Demo:
    """The two parts of the demonstration, each with its table."""

    console: Console
    layout: Layout
    say: Callable[[str], None]

    def copies(self, api: AirflowApi, app: App) -> bool:
        self.say("waiting for Airflow to know the DAGs")
        for dag_id in (_COPY_DAG, _SIZES_DAG, _EXPIRATION_DAG):
            wait_for_dag(api, dag_id, seconds=_DAG_SECONDS)
        run_id = trigger(api, _COPY_DAG, {}, on_wait=self.say)
        self.say(f"waiting for {_COPY_DAG}: plan, Spark jobs, quality check (about a minute)")
        if not self._succeeds(api, _COPY_DAG, run_id, _COPY_SECONDS):
            return False
        self.say(f"waiting for {_SIZES_DAG}, which the copy started")
        sized = self._succeeds(api, _SIZES_DAG, None, _SIZES_SECONDS)
        self.say("waiting for every copied segment to be read back and compared with the broker's file")
        found = outcomes(app, sample_log_dirs(self.layout), self.layout.state / "read-back")
        self.console.print(table(found))
        self._complain(line for outcome in found for line in outcome.differences)
        copied = sum(len(outcome.rows) for outcome in found)
        return sized and copied > 0 and all(outcome.held for outcome in found)

    def expires(self, api: AirflowApi, app: App) -> bool:
        before = holdings(app)
        self.say(f"setting retention.bytes of {_EXPIRED_TOPIC} to {_RETENTION_BYTES} bytes for each partition")
        limit_retention(app, _EXPIRED_TOPIC, _RETENTION_BYTES)
        run_id = trigger(api, _EXPIRATION_DAG, {}, on_wait=self.say)
        self.say(f"waiting for {_EXPIRATION_DAG}: plan, safety limit, Spark jobs (about half a minute)")
        succeeded = self._succeeds(api, _EXPIRATION_DAG, run_id, _EXPIRATION_SECONDS)
        after = holdings(app)
        self.console.print(expiry_table(before, after, _EXPIRED_TOPIC))
        found = list(faults(before, after, _EXPIRED_TOPIC))
        self._complain(found)
        return succeeded and not found

    def _succeeds(self, api: AirflowApi, dag_id: str, run_id: str | None, seconds: float) -> bool:
        run = wait_for_run(api, dag_id, run_id, seconds=seconds, on_change=lambda line: self.say(f"  {line}"))
        self._complain(errors_of(self.layout.airflow_home / "logs", run))
        return run.state == "success"

    def _complain(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.console.print(line, style="red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
