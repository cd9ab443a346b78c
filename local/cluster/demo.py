"""The demonstration on the production set-up: copy, quality check, sizes, expiration and audit, each by its DAG.

The demo starts the services of docker-compose.yaml as processes and produces records to a real broker. If Maven does
not bring Kafka's jars, the demo takes the bundled log dirs of two brokers instead. It triggers each DAG and waits for
it. It reads every copied segment back and compares it byte for byte with the broker's file. It compares the metrics of
copies with the bytes in the store, throttle times with a model (`local/cluster/throttle.py`), and segments and objects
before an expiration with those after it (`local/expiry.py` says what must have changed and what not). It checks which
services see the broker's log dir, and whether an alert fires in a real Prometheus. At last it looks for every secret in
arguments, logs, files of jobs and Airflow's database. It prints tables, and stops all processes that it started. The
exit code is 0 only if all runs succeeded, no comparison failed, the audit found nothing, and no secret was found.
"""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table

from include.tiering.app import App
from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.units import KIB
from local.cluster.assembly import Assembled
from local.cluster.monitored import Monitored, start_prometheus
from local.cluster.own_cluster import logged_in, run_cluster
from local.cluster.parts import BROKERS_LOG_DIR, readers
from local.cluster.throttle import QUOTAS
from local.cluster.up import needs_sentence
from local.cluster.watch import Watch
from local.expiry import faults, holdings, limit_retention
from local.expiry import table as expiry_table
from local.outcome import outcomes, table
from local.own_directory import OwnDirectory
from local.produced import TOPICS, produce
from local.runs import errors_of, trigger, wait_for_dag, wait_for_run

_COPY, _QUALITY, _SIZES = "tiering_copy", "tiering_quality", "tiering_remote_log_sizes"
_EXPIRATION, _AUDIT = "tiering_expiration", "tiering_audit"
_TABLE_WIDTH: Final = 120
_MINUTES: Final = 10
_DAG_SECONDS: Final = 300.0
_RUN_SECONDS: Final = 900.0
_EXPIRED_TOPIC: Final = "orders"
_RETENTION_BYTES: Final = 64 * KIB


def main() -> int:
    own = OwnDirectory("tiering-cluster-", _TABLE_WIDTH)
    own.console.print(needs_sentence(_MINUTES, "for the demonstration"), soft_wrap=True)
    held = False

    def program(assembled: Assembled) -> None:
        nonlocal held
        with Watch(assembled.cluster.state) as watch:
            all_passed = _demo(own.console, assembled, own.say)
            found = sorted(watch.seen) + watch.files_with_secrets()
        for place in found:
            own.console.print(f"a secret stands in {place}", style="red", markup=False, soft_wrap=True)
        own.say(f"{len(found)} places with a secret in arguments, logs, files of jobs and Airflow's database")
        own.say(f"at most {watch.most_gib:.1f} GiB of memory in use by the cluster")
        held = all_passed and not found

    run_cluster(own, program)
    return own.conclude(held=held, words="all checks passed")


def _demo(console: Console, assembled: Assembled, say: Callable[[str], None]) -> bool:
    assembled.cluster.start()
    if assembled.no_broker:
        say(f"no broker: {assembled.no_broker}; the bundled log dirs of two brokers are copied")
    else:
        say("producing records to the broker")
        topics = {**TOPICS, **dict.fromkeys(QUOTAS, 1)}
        produce(assembled.bootstrap_servers, assembled.log_dirs()[1], topics)
    server = start_prometheus(assembled, say)
    with logged_in(assembled) as (api, app):
        demo = _Demo(console, assembled, say, api, app, Monitored(assembled, app, console, say, server))
        held = demo.sees() and demo.throttles() and demo.copies() and demo.expires() and demo.audits() and demo.alerts()
        console.print(demo.steps())
        return held


@dataclass(slots=True)
class _Demo:
    """The parts of the demonstration; each run of a DAG is a row of the last table."""

    console: Console
    assembled: Assembled
    say: Callable[[str], None]
    api: AirflowApi
    app: App
    monitored: Monitored
    runs: list[tuple[str, str, float]] = field(default_factory=list)

    def sees(self) -> bool:
        """Return whether exactly the services that mount the broker's log dir see it, as on hosts of their own.

        Without a broker all services of Airflow and Spark's workers mount the bundled log dirs, which have the
        cluster's metadata.
        """
        cluster = self.assembled.cluster
        found = {name for name in cluster.services if self._sees_log_dir(name)}
        self.say(f"the broker's log dir is seen by {', '.join(sorted(found))}")
        if expected := found ^ readers(cluster.services):
            self._complain([f"these see it without a mount, or have one and do not: {', '.join(sorted(expected))}"])
        return not expected

    def _sees_log_dir(self, name: str) -> bool:
        cluster = self.assembled.cluster
        if cluster.services[name].runs_once:
            return False
        seen = cluster.run(name, "sh", "-c", f"ls {BROKERS_LOG_DIR} 2>/dev/null || true")
        return "meta.properties" in seen.split()

    def throttles(self) -> bool:
        """Return whether copies under two quotas have the throttle times of a model."""
        if self.assembled.no_broker:
            self.say("throttle times are not compared: that needs topics of its own, and there is no broker")
            return True
        wait_for_dag(self.api, _COPY, seconds=_DAG_SECONDS)
        return self._holds(self.monitored.throttle_times(lambda topic: self._run(_COPY, {"topics": [topic]})))

    def copies(self) -> bool:
        self.say("waiting for Airflow to know the DAGs")
        for dag_id in (_COPY, _QUALITY, _SIZES, _EXPIRATION, _AUDIT):
            wait_for_dag(self.api, dag_id, seconds=_DAG_SECONDS)
        if not self._run(_COPY):
            return False
        # The copy starts the size run by its asset.
        sized = self._wait(_SIZES, None)
        verified = self._run(_QUALITY, {"which": "all"})
        self.say("waiting for every copied segment to be read back and compared with the broker's file")
        found = outcomes(self.app, self.assembled.log_dirs(), self.assembled.cluster.state.root / "read-back")
        self.console.print(table(found))
        self._complain(line for outcome in found for line in outcome.differences)
        copied = sum(len(outcome.rows) for outcome in found)
        is_counted = self._holds(self.monitored.copied_bytes())
        return sized and verified and is_counted and copied > 0 and all(outcome.held for outcome in found)

    def expires(self) -> bool:
        before = holdings(self.app)
        self.say(f"setting retention.bytes of {_EXPIRED_TOPIC} to {_RETENTION_BYTES} bytes for each partition")
        limit_retention(self.app, _EXPIRED_TOPIC, _RETENTION_BYTES)
        succeeded = self._run(_EXPIRATION)
        after = holdings(self.app)
        self.console.print(expiry_table(before, after, _EXPIRED_TOPIC))
        return self._holds(faults(before, after, _EXPIRED_TOPIC)) and succeeded

    def audits(self) -> bool:
        succeeded = self._run(_AUDIT)
        findings = self.app.adapters.stores.audits.findings()
        self._complain(f"the audit found {finding.finding.kind}: {finding.finding.key}" for finding in findings)
        return succeeded and not findings

    def alerts(self) -> bool:
        return self._holds(self.monitored.alerts())

    def steps(self) -> Table:
        """Return the last table: each run with its state and its seconds."""
        shown = Table(title="runs on the cluster", title_justify="left")
        for heading in ("DAG", "state"):
            shown.add_column(heading)
        shown.add_column("seconds", justify="right")
        for dag_id, state, seconds in self.runs:
            shown.add_row(dag_id, state, f"{seconds:.0f}")
        return shown

    def _run(self, dag_id: str, conf: dict[str, object] | None = None) -> bool:
        return self._wait(dag_id, trigger(self.api, dag_id, conf or {}, on_wait=self.say))

    def _wait(self, dag_id: str, run_id: str | None) -> bool:
        self.say(f"waiting for {dag_id}")
        started = time.monotonic()
        run = wait_for_run(self.api, dag_id, run_id, seconds=_RUN_SECONDS, on_change=lambda line: self.say(f"  {line}"))
        self.runs.append((dag_id, run.state, time.monotonic() - started))
        self._complain(errors_of(self.assembled.cluster.host.volume("airflow-logs"), run))
        return run.state == "success"

    def _holds(self, faults: Iterable[str]) -> bool:
        found = list(faults)
        self._complain(found)
        return not found

    def _complain(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.console.print(line, style="red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
