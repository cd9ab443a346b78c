"""What is under way on a cluster: how far a run has got, and the processes of the part that is to be killed.

Processes are those that the cluster's own state names, and their descendants: nothing else is ever killed.
"""

import json
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import psutil

from include.tiering.app import App
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.runs.deletion_run import DeletionOutcome
from local import processes
from local.cluster.cluster import Cluster
from local.platform import PlatformError

_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_MASTER_PORT: Final = 8080
_TIMEOUT_SECONDS: Final = 5.0
_DEATH_SECONDS: Final = 10.0


class Work(StrEnum):
    """What a cluster is doing; the value is the id of the DAG."""

    COPY = "tiering_copy"
    EXPIRATION = "tiering_expiration"
    AUDIT = "tiering_audit"

    @property
    def job(self) -> str:
        """The file of the Spark job."""
        return {Work.COPY: "copying.py", Work.EXPIRATION: "expiration.py", Work.AUDIT: "audit.py"}[self]

    @property
    def application(self) -> str:
        """The end of the first word of the Spark application's name."""
        return {Work.COPY: ".copy", Work.EXPIRATION: ".expire", Work.AUDIT: ".audit"}[self]


class Part(StrEnum):
    """A part of the cluster that is killed; the value is its service, or the beginning of the names of several."""

    EXECUTOR = "spark-worker"
    WORKER = "airflow-worker"
    SCHEDULER = "airflow-scheduler"
    TRIGGERER = "airflow-triggerer"
    DATABASE = "postgres"
    STORE = "versitygw"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has got, in segments. Under way are batches of an expiration, and the cores that an audit holds."""

    done: int
    under_way: int
    left: int

    @property
    def is_in_the_middle(self) -> bool:
        return self.under_way > 0 and self.left > 0

    def __str__(self) -> str:
        return f"{self.done} done, {self.under_way} under way, {self.left} left"


def copy_progress(app: App, log_dir: Path, topic: str) -> Progress:
    """Return the FINISHED segments of the topic, those in COPY_SEGMENT_STARTED, and how many rolled ones are left."""
    metadata = app.adapters.stores.metadata
    states = [
        row.metadata.state
        for partition in metadata.partitions()
        if partition.topic == topic
        for row in metadata.list_segments(partition)
    ]
    done = states.count(RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    rolled = sum(len(rolled_segments(directory)) for directory in log_dir.glob(f"{topic}-*"))
    return Progress(done, states.count(RemoteLogSegmentState.COPY_SEGMENT_STARTED), rolled - done)


def rolled_segments(directory: Path) -> list[Path]:
    """Return the `.log` files of a partition, ordered by base offset, without the active one."""
    return sorted(directory.glob("*.log"))[:-1]


def expiration_progress(app: App) -> Progress:
    """Return the deletions of the newest run with work: how many are done, how many batches run, and what is left."""
    stores = app.adapters.stores
    runs = stores.deletions.runs_with_work(since_ms=0)
    outcomes = [item.outcome for item in stores.deletions.items(runs[-1])] if runs else []
    left = outcomes.count(DeletionOutcome.PLANNED)
    batches = sum(batch.run_id in runs for batch in stores.work.running_batches())
    return Progress(len(outcomes) - left, batches, left)


def applications(cluster: Cluster, work: Work) -> dict[str, int]:
    """Return the cores of each application of this work, by id. Raises OSError if Spark's master does not answer."""
    url = f"http://{cluster.host.addresses['spark-master']}:{_MASTER_PORT}/json/"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
        active: list[dict[str, Any]] = json.load(answer)["activeapps"]
    return {
        str(one["id"]): int(one["cores"])
        for one in active
        if str(one["name"]).partition(" ")[0].endswith(work.application)
    }


def find_victims(cluster: Cluster, part: Part, work: Work) -> tuple[str, list[psutil.Process]]:
    """Return the service to start again, empty for an executor, and the processes of the part.

    An executor is one that the work's application holds, an Airflow worker is the one that runs the work's Spark job.
    A service is killed with all that it has started, as the end of its container would do.

    Raises:
        PlatformError: the part does not run, or has nothing to do with the work.
        OSError: Spark's master does not answer.
    """
    running = processes.recorded(cluster.state.pid_files)
    found = {name: process for name, process in running.items() if name.startswith(part)}
    if part is Part.EXECUTOR:
        busy = {app_id for app_id, cores in applications(cluster, work).items() if cores}
        executors = [
            process
            for process in processes.family(found.values(), "")
            if _has_argument(process, _EXECUTOR) and busy.intersection(process.cmdline())
        ]
        if not executors:
            raise PlatformError(f"no executor works for {work}: Spark's master knows {', '.join(busy) or 'none'}")
        return "", [executors[0], *processes.family(executors[:1], "")]
    families = {name: [process, *processes.family([process], "")] for name, process in found.items()}
    if part is Part.WORKER:
        families = {
            name: family for name, family in families.items() if any(_has_argument(one, work.job) for one in family)
        }
    if not families:
        raise PlatformError(f"no {part} runs {work}: {', '.join(sorted(running))} are there")
    return next(iter(families.items()))


def kill(victims: Iterable[psutil.Process]) -> None:
    """Kill processes with SIGKILL, the first one first. Raises PlatformError if one lives on."""
    ours = list(victims)
    for process in ours:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            # It ended with the first one.
            continue
    _, alive = psutil.wait_procs(ours, timeout=_DEATH_SECONDS)
    if alive:
        raise PlatformError(f"{alive[0]} lives on after SIGKILL")


def _has_argument(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in argument for argument in process.cmdline())
    except psutil.Error:
        return False
