"""Kill each part of the production shape once in the middle of its work, and compare what is there at the end.

    python -m local.cluster.kills [PART[:WORK] ...] [--json FILE]

A cluster of its own is started, as in the demonstration. For each kill there is a topic of its own, whose copy a quota
makes last. Once segments are copied, one is under way and others are left, the part gets SIGKILL with everything that
it has started. Whatever has ended is started again after 5 seconds, as the engine of containers does. An executor is
no service: Spark is asked for another one by the next try of its batch. The kill counts only if work was left after it.

The run, or one of the two runs after it, has to do all of the work. Then there is nothing left to copy, every `.log`
object of the topic has the SHA-256 of the broker's file, the copied ranges follow each other without an overlap or a
hole, no object is there without a segment, and a full audit finds nothing. The exit code is 0 only if all of it holds
after each kill.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.table import Table

from include.tiering.app import App
from include.tiering.configs.airflow_api import AirflowApi
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.model.segments import RemoteLogSegmentMetadata
from include.tiering.units import KIB
from local.cluster.assembly import Assembled
from local.cluster.in_flight import (
    Part,
    Progress,
    Work,
    applications,
    copy_progress,
    expiration_progress,
    find_victims,
    kill,
    rolled_segments,
)
from local.cluster.keeper import Keeper
from local.cluster.own_cluster import logged_in, run_cluster
from local.expiry import OBJECTS_OF_A_SEGMENT
from local.own_directory import OwnDirectory
from local.platform import PlatformError
from local.produced import produce
from local.runs import errors_of, trigger, wait_for_dag, wait_for_run

_DEFAULT: Final = (
    *((part, Work.COPY) for part in Part),
    *((part, work) for work in (Work.EXPIRATION, Work.AUDIT) for part in (Part.WORKER, Part.DATABASE)),
)
_BEGIN_SECONDS: Final = 300.0
_RUN_SECONDS: Final = 1500.0
_DAG_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.2
_RUNS: Final = 3
_TABLE_WIDTH: Final = 160
_COPY_QUOTA: Final = 32 * KIB
_PARTITIONS: Final = {Work.COPY: 2, Work.EXPIRATION: 12, Work.AUDIT: 1}
_RECORDS: Final = {Work.COPY: 3_000, Work.EXPIRATION: 1_000, Work.AUDIT: 1_500}
"""Records of each partition. A segment of 64 KiB holds about 280; an expiration deletes all segments of a partition
in one request."""
_RETENTION_BYTES: Final = 64 * KIB
_LOST_TASK_SECONDS: Final = "60"
"""After this time without a heartbeat Airflow believes that a task is dead; its default is 300."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one kill did. Seconds are counted from the kill, `took_seconds` from the trigger of the first run."""

    part: str
    work: str
    in_flight: str
    left_after: int | None
    healthy_seconds: float | None
    ended_seconds: float
    took_seconds: float
    runs: tuple[str, ...]
    errors: tuple[str, ...] = field(default=())
    faults: tuple[str, ...] = field(default=())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.cluster.kills", description=__doc__)
    parser.add_argument(
        "kills", nargs="*", metavar="PART[:WORK]", help="such as executor or worker:audit; without any, all"
    )
    parser.add_argument("--json", type=Path, help="write the outcomes to this file, too")
    options = parser.parse_args()
    kills = [_kill_of(text) for text in options.kills] or list(_DEFAULT)
    own, outcomes = OwnDirectory("tiering-kills-", _TABLE_WIDTH), list[Outcome]()
    run_cluster(own, lambda assembled: _run_all(assembled, kills, own.say, outcomes.append))
    own.console.print(_table(outcomes))
    for outcome in outcomes:
        for line in (*outcome.errors, *outcome.faults):
            own.console.print(f"{outcome.part} in {outcome.work}: {line}", markup=False, soft_wrap=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    held = len(outcomes) == len(kills) and not any(outcome.faults for outcome in outcomes)
    return own.conclude(held=held, words="all held")


def _kill_of(text: str) -> tuple[Part, Work]:
    part, _, work = text.partition(":")
    try:
        return Part[part.upper()], Work[work.upper()] if work else Work.COPY
    except KeyError:
        parts, works = (", ".join(one.name.lower() for one in kind) for kind in (Part, Work))
        raise SystemExit(f"{text}: parts are {parts}; works are {works}") from None


def _run_all(
    assembled: Assembled,
    kills: Sequence[tuple[Part, Work]],
    say: Callable[[str], None],
    on_outcome: Callable[[Outcome], None],
) -> None:
    if assembled.no_broker:
        raise PlatformError(f"each kill needs a topic of its own, and there is no broker: {assembled.no_broker}")
    cluster = assembled.cluster
    lost = {"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": _LOST_TASK_SECONDS}
    cluster.services = {
        name: replace(service, environment={**service.environment, **lost}) if name.startswith("airflow") else service
        for name, service in cluster.services.items()
    }
    cluster.start()
    topics = {f"kill-{number}": (part, work) for number, (part, work) in enumerate(kills)}
    say("producing records to the broker")
    for work in dict.fromkeys(work for _, work in kills):
        wanted = {topic: _PARTITIONS[work] for topic, (_, own) in topics.items() if own is work}
        produce(assembled.bootstrap_servers, assembled.log_dirs()[1], wanted, _RECORDS[work])
    with logged_in(assembled) as (api, app):
        for work in {work for _, work in kills}:
            wait_for_dag(api, work, seconds=_DAG_SECONDS)
        # Audits leave out young objects; here every object counts.
        app.configs.alter(ALL_BROKERS, {"tiering.audit.min.age.ms": "0"}, author="kills")
        with Keeper(cluster, say) as keeper:
            for topic, (part, work) in topics.items():
                outcome = _Kill(assembled, keeper, api, app, say, topic, part, work).run()
                on_outcome(outcome)
                say(f"{part.name.lower()} killed in {work}: {'; '.join(outcome.faults) or 'all held'}")


@dataclass(slots=True)
class _Kill:
    """One kill, in the middle of the work on one topic."""

    assembled: Assembled
    keeper: Keeper
    api: AirflowApi
    app: App
    say: Callable[[str], None]
    topic: str
    part: Part
    work: Work
    conf: dict[str, object] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        """Kill the part, wait for the work, and compare.

        Raises:
            PlatformError: the work was never in its middle, or a part cannot be killed or started.
        """
        self._prepare()
        audits_before = self._newest_audit()
        triggered = time.monotonic()
        run_id = trigger(self.api, self.work, self.conf, on_wait=self.say)
        progress = self._until_in_the_middle()
        service, victims = find_victims(self.assembled.cluster, self.part, self.work)
        self.say(f"killing {self.part.name.lower()}, {len(victims)} processes, in {self.work}: {progress}")
        killed = time.monotonic()
        kill(victims)
        left_after = None if self.part is Part.DATABASE else self._progress().left
        healthy = self.keeper.wait_for(service, killed) - killed if service else None
        if left_after is None:
            left_after = self._progress().left
        was_left = left_after > 0 if self.work is not Work.AUDIT else self._newest_audit() == audits_before
        self._lift_limits()
        runs = tuple(self._until_done(run_id))
        ended = time.monotonic()
        found = (
            [*self._faults()] if was_left else ["nothing was left when the part was killed: the kill proves nothing"]
        )
        if self.work is Work.AUDIT and self._newest_audit() == audits_before:
            found.append("no audit was recorded")
        return Outcome(
            self.part.name.lower(),
            self.work,
            str(progress),
            left_after,
            healthy,
            ended - killed,
            ended - triggered,
            runs,
            tuple(self.errors),
            tuple(found),
        )

    def _prepare(self) -> None:
        self.conf = {"topics": [self.topic]} if self.work is Work.COPY else {}
        if self.work is Work.COPY:
            self._alter("remote.log.manager.copy.max.bytes.per.second", str(_COPY_QUOTA))
            return
        copied = wait_for_run(
            self.api,
            Work.COPY,
            trigger(self.api, Work.COPY, {"topics": [self.topic]}, on_wait=self.say),
            seconds=_RUN_SECONDS,
            on_change=lambda _: None,
        )
        if copied.state != "success":
            raise PlatformError(f"{self.topic} was not copied before {self.work}: {copied.state}")
        if self.work is Work.EXPIRATION:
            self._alter("tiering.delete.max.requests.per.second", "1")
            changes = {"retention.bytes": str(_RETENTION_BYTES)}
            self.app.configs.alter(ConfigEntity(EntityType.TOPICS, self.topic), changes, author="kills")

    def _lift_limits(self) -> None:
        if self.work is Work.COPY:
            self._alter("remote.log.manager.copy.max.bytes.per.second", None)
        elif self.work is Work.EXPIRATION:
            self._alter("tiering.delete.max.requests.per.second", None)

    def _alter(self, name: str, value: str | None) -> None:
        self.app.configs.alter(ALL_BROKERS, {name: value}, author="kills")

    def _progress(self) -> Progress:
        if self.work is Work.COPY:
            return copy_progress(self.app, self._log_dir, self.topic)
        if self.work is Work.EXPIRATION:
            return expiration_progress(self.app)
        return Progress(0, sum(applications(self.assembled.cluster, self.work).values()), 1)

    def _until_in_the_middle(self) -> Progress:
        deadline = time.monotonic() + _BEGIN_SECONDS
        while time.monotonic() < deadline:
            progress = self._progress()
            if progress.is_in_the_middle and (progress.done or self.work is Work.AUDIT):
                return progress
            time.sleep(_POLL_SECONDS)
        raise PlatformError(f"{self.work} is not in the middle after {_BEGIN_SECONDS:.0f} s: {progress}")

    def _until_done(self, run_id: str) -> Iterator[str]:
        """Yield the state of the run, and of further runs while the first ones did not do all."""
        for number in range(_RUNS):
            if number:
                run_id = trigger(self.api, self.work, self.conf, on_wait=self.say)
            run = wait_for_run(
                self.api,
                self.work,
                run_id,
                seconds=_RUN_SECONDS,
                on_change=lambda line: self.say(f"  {line}"),
            )
            self.errors += errors_of(self.assembled.cluster.host.volume("airflow-logs"), run)
            yield run.state
            if run.state == "success" and (self.work is Work.AUDIT or not self._progress().left):
                return

    @property
    def _log_dir(self) -> Path:
        return self.assembled.log_dirs()[1]

    def _newest_audit(self) -> str | None:
        newest = self.app.adapters.stores.audits.last_audit()
        return None if newest is None else newest.run_id

    def _faults(self) -> Iterator[str]:
        """Compare the topic's segments, its objects and the broker's files; audit everything."""
        metadata = self.app.adapters.stores.metadata
        stored = self.assembled.cluster.host.volume("objects") / "data" / "tiering"
        objects = [path for path in stored.rglob("*") if path.is_file() and f"{self.topic}-" in str(path)]
        segments = 0
        for directory in sorted(self._log_dir.glob(f"{self.topic}-*")):
            (partition,) = (one for one in metadata.partitions() if str(one) == directory.name)
            rows = [row.metadata for row in metadata.list_segments(partition)]
            segments += len(rows)
            yield from faults(rows, rolled_segments(directory), objects, is_complete=self.work is Work.COPY)
        if len(objects) != OBJECTS_OF_A_SEGMENT * segments:
            yield f"{len(objects)} objects of {segments} segments"
        run_id = f"after-{self.topic}"
        self.app.audit.run(run_id)
        yield from (f"the audit found {one.finding.kind}: {one.finding.key}" for one in self.app.audit.findings(run_id))


def faults(
    rows: Sequence[RemoteLogSegmentMetadata], rolled: Sequence[Path], objects: Iterable[Path], *, is_complete: bool
) -> Iterator[str]:
    """Compare the segments of a partition with the broker's files and with the objects; yield one line a difference.

    Args:
        rows: the segments, by start offset.
        rolled: the broker's `.log` files, by base offset, without the active one.
        objects: files of the store.
        is_complete: whether every rolled segment has to be there; otherwise only the last ones.
    """
    source = {int(path.stem): path for path in rolled}
    starts, expected = [row.start_offset for row in rows], sorted(source)
    yield from (f"{row.remote_log_segment_id} is in {row.state.name}" for row in rows if not row.is_finished)
    if not starts or starts != expected[-len(starts) :] or (is_complete and len(starts) != len(expected)):
        yield f"segments begin at {starts}, and the broker's at {expected}"
        return
    for row, after in pairwise(rows):
        if after.start_offset != row.end_offset + 1:
            yield f"{row.remote_log_segment_id} ends at {row.end_offset}, the next one begins at {after.start_offset}"
    logs = {path.name: path for path in objects if path.suffix == ".log"}
    for row in rows:
        name = f"{row.start_offset:020d}-{row.remote_log_segment_id.id}.log"
        if name not in logs:
            yield f"there is no object {name}"
        elif _digest(logs[name]) != _digest(source[row.start_offset]):
            yield f"{name} differs from the broker's {source[row.start_offset]}"


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _table(outcomes: Sequence[Outcome]) -> Table:
    shown = Table(title="parts killed with SIGKILL in the middle of their work", title_justify="left")
    for heading in ("killed", "in", "at the kill", "runs"):
        shown.add_column(heading)
    for heading in ("healthy again", "done", "whole story"):
        shown.add_column(f"{heading}\nafter s", justify="right")
    shown.add_column("objects, ranges, audit")
    for one in outcomes:
        healthy = "" if one.healthy_seconds is None else f"{one.healthy_seconds:.0f}"
        times = (healthy, f"{one.ended_seconds:.0f}", f"{one.took_seconds:.0f}")
        shown.add_row(
            one.part, one.work, one.in_flight, ", ".join(one.runs), *times, f"{len(one.faults) or 'no'} faults"
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
