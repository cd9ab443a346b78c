"""What the page *Tiering* costs beside Airflow's own list of DAGs, over a large archive with a long history.

    python -m benchmarks.bench_page [--segments 1000000] [--partitions 10000] [--days 90] [--rounds 100] [--viewers 20]

A real API server of Airflow serves both, from SQLite; its scheduler, triggerer and DAG processor have ended before
anything is measured. Each data route is asked in turns with the two lists of DAGs that Airflow's own pages load, in
another order each time, and so seldom that no answer is one that another viewer's question left. Then viewers look at
the view *Now* as browsers do, and the CPU time of the API server is compared with that of the same time without
viewers.

Firm: at most ten statements a route; p95 of each route at most that of Airflow's list; viewers take at most a tenth of
a core together.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from sqlalchemy import Connection, Engine, event, insert, select, text

from benchmarks.sizes_scene import CLUSTER_ID, PARTITIONS_PER_TOPIC, build
from include.tiering.app import App, open_app
from include.tiering.configs.airflow_api import AirflowApi, Login
from include.tiering.configs.report import LATEST_CHANGES, describe_now
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import (
    audit_findings,
    audits,
    dynamic_config_changes,
    events,
    metric_hours,
    metric_series,
)
from include.tiering.operations.attention import attention_document
from include.tiering.operations.quality import quality_document
from include.tiering.operations.timeline import timeline_document
from include.tiering.operations.topic_list import AskedPage
from include.tiering.settings import load_settings
from local import processes
from local.assembly import assemble
from local.layout import Layout
from local.platform import stop
from local.ports import free_port
from local.runs import wait_for_dag
from local.secrets_store import ADMIN, password_of
from tests.doubles.broker_data import broker_data

TOPIC: Final = "topic-0"
ROUTES: Final[Mapping[str, str]] = {
    "now": "now",
    "throughput": "throughput?hours=6",
    "topics": "topics?limit=50",
    "topic": f"topic?name={TOPIC}",
    "segments": f"segments?topic={TOPIC}&partition=0",
    "attention": "attention",
    "quality": "quality",
    "backfill": "backfill",
    "limits": "limits",
}
READS: Final[Mapping[str, Callable[[App], Any]]] = {
    "now": lambda app: app.operations.overview.now(),
    "throughput": lambda app: app.operations.throughput.last_hours(6),
    "topics": lambda app: app.operations.topic_list.page(AskedPage()),
    "topic": lambda app: app.operations.topic_details.of(TOPIC),
    "segments": lambda app: timeline_document(app.operations.timeline.of(TOPIC, 0)),
    "attention": lambda app: attention_document(app.operations.attention.now()),
    "quality": lambda app: quality_document(app.operations.quality.now()),
    "backfill": lambda app: app.operations.backfill.of(),
    "limits": lambda app: (
        describe_now(app.adapters.stores.configs, app.settings, lambda: app.configs.pools_status(ask_airflow=False)),
        app.adapters.stores.events.newest(LATEST_CHANGES),
    ),
}
"""What a route reads."""
AIRFLOW: Final[Mapping[str, str]] = {
    "DAG list": "/ui/dags?dag_runs_limit=14&limit=50&offset=0&order_by=dag_display_name",
    "DAGs of the API": "/api/v2/dags?limit=50",
}
DAGS: Final = 9
MOST_STATEMENTS: Final = 10
MOST_CPU: Final = 0.1
_SHARED_SECONDS: Final = 2.2
"""Answers are shared for two seconds at most, but for the throughput."""
_THROUGHPUT_SECONDS: Final = 10.5
_DAG_SECONDS: Final = 120.0
_HOURS: Final = 14 * 24
_SERIES_AT_ONCE: Final = 5_000
_BUSY_TOPICS: Final = 50


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the page Tiering; prints JSON.")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long viewers look")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tiering-page-") as directory:
        result = measured(Path(directory), asked)
    print(json.dumps(result))
    return int(not all(result["holds"].values()))


def measured(directory: Path, asked: argparse.Namespace) -> dict[str, Any]:
    url = f"sqlite:///{directory / 'archive.sqlite'}"
    _say(f"building {asked.segments:,} segments in {asked.partitions:,} partitions, and {asked.days} days of history")
    build(url, asked.segments, asked.partitions, all_finished=True)
    _history(url, -(-asked.partitions // PARTITIONS_PER_TOPIC), asked.days)
    with open_app(load_settings(environ=_settings(url, directory))) as app:
        statements = {name: _statements(app, read) for name, read in READS.items()}
    with _served(directory, url) as (api_server, client):
        _say(f"asking {len(ROUTES)} routes and {len(AIRFLOW)} lists of Airflow's in {asked.rounds} rounds")
        answers = _asked_in_turns(client, asked.rounds)
        _say(f"{asked.viewers} viewers look for {asked.seconds:.0f} s")
        idle, busy = _cpu_of_viewers(api_server, client, asked.viewers, asked.seconds)
    slowest = answers["DAG list"]["p95_ms"]
    return {
        "segments": asked.segments,
        "partitions": asked.partitions,
        "days": asked.days,
        "statements": statements,
        "answers": answers,
        "viewers": asked.viewers,
        "cores_without_viewers": round(idle, 3),
        "cores_with_viewers": round(busy, 3),
        "cores_of_viewers": round(busy - idle, 3),
        "holds": {
            "statements": max(statements.values()) <= MOST_STATEMENTS,
            "no slower than the DAG list": all(answers[name]["p95_ms"] <= slowest for name in ROUTES),
            "cpu of viewers": busy - idle <= MOST_CPU,
        },
    }


def _statements(app: App, read: Callable[[App], Any]) -> int:
    """Count the SELECT statements of a second read, also those about metrics, which have an engine of their own.

    The first read opens what the others share.
    """
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(statement)

    read(app)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        read(app)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return sum(statement.startswith("SELECT") for statement in asked)


def _settings(url: str, directory: Path) -> dict[str, str]:
    return {
        "TIERING_METADATA__URL": url,
        "TIERING_REMOTE_STORAGE__URL": f"file://{directory / 'remote'}",
        "TIERING_TOPICS__INCLUDE": "*",
    }


def _history(url: str, topics: int, days: int) -> None:
    """Write changes, events, audits and findings of these days, and metrics of the 14 that are kept."""
    engine, now_ms, drawn = open_engine(url), round(time.time() * 1000), random.Random(1)
    with engine.begin() as connection:
        moments = [now_ms - round(days * 86_400_000 * part / 10_000) for part in range(10_000, 0, -1)]
        by_cluster = {"cluster_id": CLUSTER_ID}
        changes = [
            by_cluster
            | {"entity_type": "topics", "entity_name": f"topic-{number % topics}", "name": "retention.ms"}
            | {"old_value": "604800000", "new_value": "86400000", "author": "olga", "changed_at_ms": moment}
            for number, moment in enumerate(moments)
        ]
        connection.execute(insert(dynamic_config_changes), changes)
        happened = [
            by_cluster
            | {"occurred_at_ms": moment, "kind": "pause", "subject": f"topic-{number % topics}"}
            | {"detail": "", "author": "otto"}
            for number, moment in enumerate(moments * 3)
        ]
        connection.execute(insert(events), happened)
        _audits(connection, now_ms, days)
        _metrics(connection, topics, now_ms, drawn)
    engine.dispose()


def _audits(connection: Connection, now_ms: int, days: int) -> None:
    daily = [
        {"cluster_id": CLUSTER_ID, "run_id": f"audit-{day}", "source": "listing", "began_at_ms": now_ms, "findings": 0}
        | {"seen_at_ms": now_ms - day * 86_400_000, "objects": 3_000_000, "rows": 1_000_000, "passed_over": "{}"}
        | {"refusals": "[]", "recorded_at_ms": now_ms - day * 86_400_000, "sequence": days - day}
        for day in range(days)
    ]
    connection.execute(insert(audits), daily)
    found = [
        {"cluster_id": CLUSTER_ID, "identity": f"{number:064d}", "kind": "orphan", "key": f"topic-1/0/{number}.log"}
        | {"size_bytes": 7, "message": "of an unknown segment id", "first_seen_ms": now_ms, "last_seen_ms": now_ms}
        | {"last_run_id": "audit-0", "state": "open" if number < 500 else "gone", "state_at_ms": now_ms}
        for number in range(20_000)
    ]
    connection.execute(insert(audit_findings), found)


def _metrics(connection: Connection, topics: int, now_ms: int, drawn: random.Random) -> None:
    """Write series of each topic, with an hourly minute of each that is kept by minute, and busy minutes of a few."""
    hour = now_ms // 3_600_000
    of_topics = [
        (metric, {"topic": f"topic-{number}"}, by_minute)
        for metric, by_minute in (
            ("RemoteCopyLagBytes", True),
            ("RemoteCopyLagSegments", True),
            ("tiering_remote_copy_lag_seconds", True),
            ("RemoteLogSizeBytes", True),
            ("tiering_failed_segments", False),
        )
        for number in range(topics)
    ]
    held = [
        ("tiering_copy_held_back_partitions", {"reason": "byte-limit", "topic": f"topic-{number}"}, False)
        for number in range(0, topics, 2)
    ]
    sums = [
        (metric, labels, False)
        for metric, labels in (
            *(("tiering_verdict_bytes", {"verdict": verdict}) for verdict in ("none", "passed", "failed", "expired")),
            *(("tiering_verdict_segments", {"verdict": verdict}) for verdict in ("none", "passed")),
            ("tiering_verdict_segments_by_age", {"age": "7-30", "depth": "deep", "verdict": "passed"}),
            ("tiering_verdict_bytes_by_age", {"age": "7-30", "depth": "deep", "verdict": "passed"}),
            ("tiering_audit_findings", {"kind": "orphan"}),
        )
    ]
    _series(connection, [*of_topics, *held, *sums], now_ms, drawn)
    connection.execute(
        text(
            "INSERT INTO metric_hours (series_id, hour, cluster_id, minutes)"
            " WITH RECURSIVE h(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM h WHERE n < :hours - 1)"
            " SELECT series_id, :newest - n, cluster_id, '{\"7\":' || value || '}' FROM metric_series, h"
            " WHERE metric LIKE 'Remote%' OR metric = 'tiering_remote_copy_lag_seconds'"
        ),
        {"hours": _HOURS, "newest": hour},
    )
    busy = [
        (metric, {"kind": "copy", "topic": f"topic-{number}"}, False)
        for metric in ("tiering_quota_granted_bytes", "tiering_quota_throttled_seconds")
        for number in range(min(topics, _BUSY_TOPICS))
    ]
    _series(connection, busy, now_ms, drawn)
    of_busy = select(metric_series.c.series_id).where(metric_series.c.metric.like("tiering_quota_%"))
    full = json.dumps({str(minute): 1_000_000.0 + minute for minute in range(60)}, separators=(",", ":"))
    rows = [
        {"cluster_id": CLUSTER_ID, "series_id": series_id, "hour": hour - back, "minutes": full}
        for series_id in connection.execute(of_busy).scalars().all()
        for back in range(_HOURS)
    ]
    connection.execute(insert(metric_hours), rows)


def _series(
    connection: Connection, named: Sequence[tuple[str, Mapping[str, str], bool]], now_ms: int, drawn: random.Random
) -> None:
    rows = [
        {"cluster_id": CLUSTER_ID, "metric": metric, "updated_at_ms": now_ms, "value": float(drawn.randrange(1, 10**6))}
        | {"labels": json.dumps(labels, separators=(",", ":"), sort_keys=True)}
        for metric, labels, _ in named
    ]
    for begin in range(0, len(rows), _SERIES_AT_ONCE):
        connection.execute(insert(metric_series), rows[begin : begin + _SERIES_AT_ONCE])


@contextmanager
def _served(directory: Path, url: str) -> Iterator[tuple[psutil.Process, httpx.Client]]:
    """An API server that knows the DAGs, and a client of the administrator; the other components have ended."""
    layout = Layout.below(directory / "platform")
    layout.state.mkdir(parents=True)
    own = _settings(f"sqlite:///{layout.metadata_database}", directory)
    own["TIERING_LOG_DIRS"] = f"1:{broker_data('public') / 'stopped' / 'broker-1'}"
    with ExitStack() as stack:
        platform = assemble(layout, own, port=free_port(), say=_say)
        stack.callback(stop, layout, _say)
        platform.set_up()
        served = replace(platform, environment={**platform.environment, "TIERING_METADATA__URL": url})
        served.start()
        login = Login(ADMIN, password_of(layout, ADMIN))
        with AirflowApi(platform.base_url, login) as api:
            wait_for_dag(api, "tiering_copy", seconds=_DAG_SECONDS)
            _wait_for_dags(api)
        running = processes.recorded(layout.components)
        others = [process for name, process in running.items() if name != "api-server"]
        processes.end(others, patience_seconds=60)
        client = stack.enter_context(httpx.Client(base_url=platform.base_url, timeout=60))
        answer = client.post("/auth/token", json={"username": ADMIN, "password": login.password})
        client.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"
        yield running["api-server"], client


def _wait_for_dags(api: AirflowApi) -> None:
    deadline = time.monotonic() + _DAG_SECONDS
    while api.get("/dags", limit="50")["total_entries"] < DAGS and time.monotonic() < deadline:
        time.sleep(0.5)


def _asked_in_turns(client: httpx.Client, rounds: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {name: [] for name in (*ROUTES, *AIRFLOW)}
    paths = {name: f"/tiering/page/{path}" for name, path in ROUTES.items()} | dict(AIRFLOW)
    for path in paths.values():  # A first answer imports what the route needs.
        client.get(path).raise_for_status()
    last_throughput, order, drawn = time.monotonic(), list(paths), random.Random(1)
    for _ in range(rounds):
        begun = time.monotonic()
        # What comes first has waited longest, and what follows a large answer may pay for it.
        drawn.shuffle(order)
        for name in order:
            path = paths[name]
            if name == "throughput":
                if time.monotonic() - last_throughput < _THROUGHPUT_SECONDS:
                    continue
                last_throughput = time.monotonic()
            asked = time.perf_counter()
            client.get(path).raise_for_status()
            taken[name].append((time.perf_counter() - asked) * 1000)
        time.sleep(max(0.0, _SHARED_SECONDS - (time.monotonic() - begun)))
    if not taken["throughput"]:  # A few rounds are over before an answer is fresh again.
        time.sleep(_THROUGHPUT_SECONDS)
        asked = time.perf_counter()
        client.get(paths["throughput"]).raise_for_status()
        taken["throughput"].append((time.perf_counter() - asked) * 1000)
    return {name: _summary(found) for name, found in taken.items()}


def _summary(milliseconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {
        "answers": len(ordered),
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)], 1),
    }


def _cpu_of_viewers(
    api_server: psutil.Process, client: httpx.Client, viewers: int, seconds: float
) -> tuple[float, float]:
    """Return how many cores the API server used without and with viewers."""

    def used() -> float:
        family = [api_server, *api_server.children(recursive=True)]
        return sum(each.cpu_times().user + each.cpu_times().system for each in family)

    def over(look: Callable[[], None]) -> float:
        before, begun = used(), time.monotonic()
        look()
        return (used() - before) / (time.monotonic() - begun)

    return over(lambda: time.sleep(seconds)), over(lambda: asyncio.run(_look(client, viewers, seconds)))


async def _look(client: httpx.Client, viewers: int, seconds: float) -> None:
    """Ask as so many browsers do: the present state every 2 seconds, the throughput every 30 seconds."""
    until = time.monotonic() + seconds

    async def view(number: int) -> None:
        headers = {"Authorization": client.headers["Authorization"]}
        async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=60) as own:
            await asyncio.sleep(2 * number / viewers)
            asked_throughput = -30.0
            while time.monotonic() < until:
                (await own.get("/tiering/page/now")).raise_for_status()
                if time.monotonic() - asked_throughput >= 30:
                    asked_throughput = time.monotonic()
                    (await own.get("/tiering/page/throughput?hours=6")).raise_for_status()
                await asyncio.sleep(2)

    await asyncio.gather(*(view(number) for number in range(viewers)))


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
