"""A running `tiering_copy` in a real Airflow whose quota and pool are changed meanwhile, as a receiver sees it.

    python -m benchmarks.quota_in_airflow [--plot PLOT.svg] [--trace TRACE.json] [--directory DIR]

    quota       pool
    20 MB/s     2           two batches send
                2 -> 3      by Airflow's REST API: a waiting batch starts
    -> 5 MB/s   3           by ./tiering configs --alter
    -> 12 MB/s  3           by the DAG tiering_configs, with the params of its form
                3 -> 1      surplus batches end after their segment
    removed     1           the rest of the run, quality gate and summary

Prints one JSON document with every check; exit code 1 if one failed. Checks cover the time with work, and the idle
share of the machine. A run takes about four minutes and 2 GB of disk.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.airflow_scene import COPY_DAG, SIZES_DAG, AirflowScene, Change, PoolWatch, Sample, airflow_scene
from benchmarks.batches_panel import with_batches
from benchmarks.bench_upload import tell
from benchmarks.generated_log_dir import Shape
from benchmarks.machine import IdleMeter
from benchmarks.plot_trace import plot
from benchmarks.quota_scenarios import Check
from benchmarks.quota_trace import (
    Trace,
    longest_burst_s,
    longest_silence_s,
    settled_after_s,
    slowest_second,
    worst_second,
)
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.model.segments import Verdict
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.units import KIB, MIB
from local.runs import DagRun, errors_of, trigger, wait_for_run

MB: Final = 1_000_000
FIRST, BY_COMMAND, BY_FORM = 20 * MB, 5 * MB, 12 * MB
SHAPE: Final = Shape(partitions=6, segments=20, segment_bytes=16 * MIB, batch_bytes=64 * KIB)
MAX_BATCHES: Final = 4
SLOTS, GROWN, SHRUNK = 2, 3, 1
HOLD_S: Final = 15.0
LEAD_IN_S: Final = 5.0
SETTLED_S: Final = 0.5
WITHIN: Final = 0.10
_START_SECONDS: Final = 120.0
_END_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch between two events in which one quota was in force."""

    name: str
    quota: int
    begun_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What the scenario saw. `surplus_s`: seconds from the smaller pool to the end of the last surplus batch."""

    trace: Trace
    sending_s: float
    ended_s: float
    changes: tuple[Change, ...]
    phases: tuple[Phase, ...]
    events: tuple[tuple[float, str], ...]
    samples: tuple[Sample, ...]
    started_after_s: float
    surplus_s: float
    idle_share: float

    @property
    def quotas(self) -> list[tuple[float, int]]:
        return [(self.sending_s, FIRST), *((change.taken_s, change.quota) for change in self.changes)]

    @property
    def slots(self) -> list[tuple[float, int]]:
        """The size of the pool in Airflow, by the time from which on it held."""
        return [(self.sending_s, SLOTS), (self.phases[1].begun_s, GROWN), (self.phases[-1].begun_s, SHRUNK)]


def scenario(scene: AirflowScene) -> tuple[DagRun, Observed]:
    """The run and what was seen. Raises RuntimeError, TimeoutError: something did not happen at all."""
    scene.configs("--add-config", f"{TOTAL_COPY_QUOTA}={FIRST}")
    scene.resize_pool(SLOTS)
    scene.forget()
    run_id = trigger(scene.api, COPY_DAG, {})
    with PoolWatch(scene, run_id) as watch:
        tell("waiting for two batches to send (about 30 s)")
        watch.wait_for(lambda sample: len(sample.live_batches) == SLOTS, seconds=_START_SECONDS, what="two batches")
        time.sleep(2.0)
        idle = IdleMeter()
        sending_s = time.monotonic()
        time.sleep(HOLD_S)
        grown_s = scene.resize_pool(GROWN)
        tell(f"pool {SLOTS} -> {GROWN}")
        started_s = watch.wait_for(lambda sample: len(sample.live_batches) == GROWN, seconds=60, what="a third batch")
        time.sleep(HOLD_S)
        tell("quota by ./tiering configs --alter")
        by_command = scene.change_by_command(BY_COMMAND)
        time.sleep(HOLD_S)
        tell("quota by the form of tiering_configs")
        form_s = time.monotonic()
        by_form = scene.change_by_form(BY_FORM)
        time.sleep(HOLD_S)
        shrunk_s = scene.resize_pool(SHRUNK)
        tell(f"pool {GROWN} -> {SHRUNK}")
        alone_s = watch.wait_for(lambda sample: len(sample.live_batches) == SHRUNK, seconds=60, what="surplus to end")
        time.sleep(HOLD_S)
        ended_s = time.monotonic()
        idle_share = idle.share()
        trace = scene.trace()
    scene.configs("--delete-config", TOTAL_COPY_QUOTA)
    tell("quota removed: waiting for the rest of the run, its gate and its summary")
    run = wait_for_run(scene.api, COPY_DAG, run_id, seconds=_END_SECONDS, on_change=tell)
    wait_for_run(scene.api, SIZES_DAG, None, seconds=_END_SECONDS, on_change=tell)
    for line in errors_of(scene.layout.airflow_home / "logs", run):
        tell(line)
    return run, Observed(
        trace.part(sending_s - LEAD_IN_S, ended_s),
        sending_s,
        ended_s,
        (by_command, by_form),
        (
            Phase(f"pool {SLOTS}", FIRST, sending_s, grown_s),
            Phase(f"pool {SLOTS} -> {GROWN}", FIRST, grown_s, by_command.begun_s),
            Phase("after ./tiering configs", BY_COMMAND, by_command.returned_s, by_form.begun_s),
            Phase("after tiering_configs", BY_FORM, by_form.returned_s, shrunk_s),
            Phase(f"pool {GROWN} -> {SHRUNK}", BY_FORM, shrunk_s, ended_s),
        ),
        (
            (grown_s, f"pool {SLOTS} → {GROWN}"),
            (by_command.returned_s, "configs --alter returned"),
            (form_s, "form triggered"),
            (by_form.returned_s, "form's task succeeded"),
            (shrunk_s, f"pool {GROWN} → {SHRUNK}"),
        ),
        tuple(watch.samples),
        started_s - grown_s,
        alone_s - shrunk_s,
        idle_share,
    )


def checked(seen: Observed) -> list[Check]:
    """Rates are shares of the quota in force. A new quota is met at once; with a new pool shares move for a second."""
    checks = []
    for phase in seen.phases:
        part, rate = seen.trace.part(phase.begun_s + SETTLED_S, phase.ended_s), phase.quota
        is_new_quota = phase in (seen.phases[2], seen.phases[3])
        checks += [
            *(
                Check(f"{phase.name}: first {seconds:g} s", _first(part, seconds) / rate, 1 - WITHIN, 1 + WITHIN)
                for seconds in ((2.0, 5.0) if is_new_quota else (5.0,))
            ),
            Check(f"{phase.name}: average", part.average / rate, 1 - WITHIN, 1.0),
            Check(f"{phase.name}: worst second", worst_second(part) / rate, at_most=1.05),
            Check(f"{phase.name}: silence", longest_silence_s(part), 0, 0.5),
            Check(f"{phase.name}: burst", longest_burst_s(part, rate), 0, 0.5),
        ]
    return [*checks, *pool_checks(seen)]


def pool_checks(seen: Observed) -> list[Check]:
    """Airflow runs no more batches than the pool has slots, surplus ones end after a segment."""
    grown_s, shrunk_s = seen.phases[1].begun_s, seen.phases[-1].begun_s
    segment_s = SHAPE.segment_bytes / (BY_FORM / GROWN)
    before = [sample.running_tasks for sample in seen.samples if sample.at_s < grown_s]
    after = [
        len(sample.live_batches) for sample in seen.samples if shrunk_s + seen.surplus_s <= sample.at_s <= seen.ended_s
    ]
    return [
        Check("tasks before the pool grew", max(before), SLOTS, SLOTS),
        Check("seconds until the waiting batch worked", seen.started_after_s, 0, 30),
        # The mirror looks every 2 s, the sample every second, a batch that ends is believed live for 3 s at most.
        Check("seconds until surplus batches had ended", seen.surplus_s, 0, segment_s + 6),
        Check("batches from then on", max(after, default=None), SHRUNK, SHRUNK),
    ]


def end_checks(scene: AirflowScene, ended: DagRun) -> list[Check]:
    """All was copied once, nothing was cut off or refused, and nobody holds anything any more."""
    run = scene.app.copying.run_report(ended.run_id)
    rows = [
        row
        for partition in scene.app.adapters.stores.metadata.partitions()
        for row in scene.app.adapters.stores.metadata.list_segments(partition)
    ]
    _, received_bytes, _, refused = scene.ask_sink("")
    planned = SHAPE.partitions * SHAPE.segments
    scratch = list(scene.layout.work_dir.glob("spark-job-*"))
    return [
        Check("run succeeded", ended.state == "success", True, True),
        Check("segments copied", len(run.of(SegmentOutcome.COPIED)), planned, planned),
        Check("segments that passed the gate", sum(row.verdict is Verdict.PASSED for row in rows), planned, planned),
        Check("attempts that are no finished copy", sum(not row.metadata.is_finished for row in rows), 0, 0),
        Check("received of the logs' bytes", received_bytes / run.copied_bytes, 1.0, 1.002),
        Check("refused by the sink", refused, 0, 0),
        Check("senders in the ledger", len(scene.app.adapters.quota_ledger.workers()), 0, 0),
        Check("live batches", len(scene.app.adapters.stores.work.live_batches(COPIER_POOL)), 0, 0),
        Check("scratch left by jobs", len(scratch), 0, 0),
    ]


def reported(seen: Observed) -> dict[str, Any]:
    """Figures without a bound."""
    return {
        "idle_share": seen.idle_share,
        "changes": [
            {
                "to": change.quota,
                "command_s": round(change.returned_s - change.begun_s, 2),
                "taken_before_return_s": round(change.returned_s - change.taken_s, 2),
            }
            for change in seen.changes
        ],
        "phases": {
            phase.name: {
                "seconds": round(phase.ended_s - phase.begun_s, 1),
                "slowest_second": round(slowest_second(part) / phase.quota, 3),
                "settled_s": settled_after_s(part, phase.quota, within=WITHIN, window_s=2.0),
            }
            for phase in seen.phases
            for part in (seen.trace.part(phase.begun_s, phase.ended_s),)
        },
    }


def trace_json(seen: Observed) -> dict[str, Any]:
    """What `plot_trace` draws, and the samples of the pool."""
    samples = [asdict(sample) for sample in seen.samples]
    return {"trace": seen.trace.to_json(), "quotas": seen.quotas, "events": seen.events, "samples": samples}


def picture(seen: Observed) -> str:
    """The trace against the quota in force; below it the batches and the pool."""
    title = "tiering_copy in Airflow: MB/s at the store"
    return with_batches(
        plot(seen.trace, seen.quotas, seen.events, title=title, window_s=SETTLED_S),
        seen.trace,
        [(sample.at_s, len(sample.live_batches)) for sample in seen.samples],
        seen.slots,
    )


def _first(part: Trace, seconds: float) -> float:
    return part.part(part.begun_s, part.begun_s + seconds).average


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Change quota and pool of a running tiering_copy; prints JSON.")
    parser.add_argument("--plot", type=Path, help="where to draw what came in")
    parser.add_argument("--trace", type=Path, help="where to keep the trace as JSON")
    parser.add_argument("--directory", type=Path, help="where the files are made")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="quota-in-airflow-", dir=options.directory))
    checks: list[Check] = []
    try:
        with airflow_scene(directory, SHAPE, max_batches=MAX_BATCHES, say=tell) as scene:
            ended, seen = scenario(scene)
            checks = [*checked(seen), *end_checks(scene, ended)]
    finally:
        if checks and all(check.passed for check in checks):
            shutil.rmtree(directory)
        else:
            tell(f"kept for a look: {directory}")
    if options.trace is not None:
        options.trace.write_text(json.dumps(trace_json(seen)))
    if options.plot is not None:
        options.plot.write_text(picture(seen))
    failed = [check for check in checks if not check.passed]
    for check in failed:
        tell(f"FAILED {check.name}: {check.to_json()}")
    document = {"passed": not failed, **reported(seen), "checks": {check.name: check.to_json() for check in checks}}
    sys.stdout.write(json.dumps(document) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
