"""A deployment over a writable copy of real log dirs, and what may happen to those dirs afterwards."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.copying.plan import CopyPlan
from include.tiering.expiration.delete_segments import DeleteResult
from include.tiering.expiration.report import ExpireRun
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.databases import copied_database
from tests.doubles.json_shapes import checked
from tests.doubles.tiered_topic import metadata_batch, remove_topic

# A deployment over a writable copy of real log dirs, and what may happen to those dirs afterwards.

ORDERS: Final = "orders"
EVERYTHING: Final = {0: [0, 96, 188, 282, 664, 808], 1: [0, 536, 716, 847]}
"""The start offsets of all segments that can be copied, by partition number."""

Command = Callable[..., Result]


def sqlite_url(directory: Path) -> str:
    """A database in a file of the deployment's directory."""
    return f"sqlite:///{directory / 'metadata.sqlite'}"


@dataclass
class Archive:
    """Topic `orders` of two brokers. Runs are numbered as they come."""

    directory: Path
    brokers: Path
    config: Path = field(init=False)
    runs: int = 0

    new_database: ClassVar[Callable[[Path], str]] = staticmethod(sqlite_url)
    """The URL of an empty database for the deployment below a directory. The fixture `on_each_database` replaces it."""

    @classmethod
    def of(cls, directory: Path) -> "Archive":
        archive = cls(directory, copy_of("public", directory, part="stopped"))
        archive.config = directory / "tiering.toml"
        archive.config.touch(mode=0o600)
        archive.config.write_text(
            f"""log_dirs = [
  {{broker_id = 1, path = "{archive.brokers / "broker-1"}"}},
  {{broker_id = 2, path = "{archive.brokers / "broker-2"}"}},
]
[metadata]
url = "{cls.new_database(directory)}"
[remote_storage]
url = "{(directory / "store").as_uri()}"
[topics]
include = ["{ORDERS}"]
"""
        )
        with archive.open() as app:
            app.set_up.migrate()
        return archive

    @contextmanager
    def open(self) -> Iterator[App]:
        with open_app(settings_of(self.config)) as app:
            yield app

    @property
    def database_url(self) -> str:
        return settings_of(self.config).metadata.url.get_secret_value()

    def with_copied_database(self) -> str:
        """Copy the database as it is now; return a settings file that is right but for naming the copy."""
        return self.config.read_text().replace(self.database_url, copied_database(self.database_url))

    def run_id(self, kind: str) -> str:
        self.runs += 1
        return f"{kind}-{self.runs}"

    def copy(self, *, limit_bytes: int | None = None) -> CopyPlan:
        """Plan and copy whatever the log dirs hold now."""
        with self.open() as app:
            run_id = self.run_id("copy")
            plan = app.copying.plan(run_id, limit_bytes=limit_bytes)
            app.copying.run_batch(run_id, f"{run_id}/0")
            return plan

    def expire(self, *, approved: bool = True) -> tuple[ExpireRun, DeleteResult | None]:
        """Plan, apply the deletion limits, approve if need be, delete."""
        with self.open() as app:
            run_id = self.run_id("expire")
            plan = app.expiration.plan(run_id)
            limit_report = app.expiration.apply_limits(run_id)
            if limit_report.needs_approval and approved:
                app.expiration.approve(run_id, plan.plan_hash, author="test")
            result = (
                app.expiration.run_batch(run_id, f"{run_id}/0") if approved or not limit_report.needs_approval else None
            )
            store = app.adapters.stores.deletions
            stored, items = store.run(run_id), store.items(run_id)
            return ExpireRun(
                stored, plan.expirations, items, limit_report, plan.unknowns, plan.waiting, held=plan.held
            ), result

    def set(self, **configs: str | int | None) -> None:
        """Dynamic configs of the topic; underscores stand for dots, None removes."""
        self._alter(ConfigEntity(EntityType.TOPICS, ORDERS), configs)

    def set_default(self, **configs: str | int | None) -> None:
        """Dynamic settings of the cluster."""
        self._alter(ConfigEntity(EntityType.BROKERS), configs)

    def remote(self) -> dict[TopicIdPartition, list[RemoteLogSegmentMetadata]]:
        """FINISHED segments by partition."""
        with self.open() as app:
            return {
                partition: [
                    row.metadata
                    for row in app.adapters.stores.metadata.list_segments(partition)
                    if row.metadata.is_finished
                ]
                for partition in app.adapters.stores.metadata.partitions()
            }

    def offsets(self, number: int) -> list[int]:
        """Start offsets of the FINISHED segments of one partition."""
        by_partition = self.remote()
        return [one.start_offset for p, found in by_partition.items() if p.partition == number for one in found]

    def left(self) -> dict[int, list[int]]:
        """Start offsets of the FINISHED segments of both partitions, for a comparison with `EVERYTHING`."""
        return {number: self.offsets(number) for number in EVERYTHING}

    def command(self, *arguments: str) -> Result:
        """Run one `./tiering` command in this process, on a wide terminal."""
        options = ["--config", str(self.config), *arguments]
        return checked(options, CliRunner(env={"COLUMNS": "300"}).invoke(cli, options, prog_name="./tiering"))

    def require_served(self) -> None:
        """Every FINISHED segment answers for its offsets under its epochs, and its bytes can be read."""
        with self.open() as app:
            for partition, segments in self.remote().items():
                for segment in segments:
                    for epoch, start_offset in segment.segment_leader_epochs:
                        assert (
                            app.adapters.stores.metadata.segment_for_offset(partition, epoch, start_offset) == segment
                        )
                    blocks = app.adapters.storage.fetch_log_segment(segment, limiter=UnlimitedBytes())
                    assert sum(map(len, blocks)) == segment.segment_size_bytes

    def require_no_other_objects(self) -> None:
        """Three objects for each segment that is not a tombstone, and the marker; nothing else."""
        with self.open() as app:
            rows = [
                row.metadata
                for partition in app.adapters.stores.metadata.partitions()
                for row in app.adapters.stores.metadata.list_segments(partition)
            ]
            stored = {thing.key for row in rows for thing in app.adapters.storage.stat_log_segment(row)}
            keys = {key for key, _ in app.adapters.storage.list_objects()}
            assert len(stored) == 3 * len(rows)
            assert keys - {"_tiering-store.json"} == stored

    def partition_dir(self, broker: int, number: int) -> Path:
        return self.brokers / f"broker-{broker}" / f"{ORDERS}-{number}"

    def raise_broker_log_start(self, number: int, offset: int) -> None:
        """As retention does: segments wholly below are gone, the checkpoint says so, the epoch cache is cut."""
        for broker in (1, 2):
            directory = self.partition_dir(broker, number)
            if not directory.exists():
                continue
            bases = sorted(int(path.stem) for path in directory.glob("*.log"))
            for base, following in pairwise(bases):
                if following <= offset:
                    for path in directory.glob(f"{base:020d}.*"):
                        path.unlink()
            self._write_checkpoint(directory.parent / "log-start-offset-checkpoint", f"{ORDERS} {number} {offset}")
            epochs = [tuple(map(int, line.split())) for line in _lines(directory / "leader-epoch-checkpoint")]
            before = [epoch for epoch, start in epochs if start <= offset]
            after = [(epoch, start) for epoch, start in epochs if start > offset]
            kept = [*([(before[-1], offset)] if before else []), *after]
            self._write_checkpoint(directory / "leader-epoch-checkpoint", *(f"{e} {s}" for e, s in kept))

    def recreate_topic(self, topic_id: str) -> None:
        """Another topic takes the name: its directories say another id."""
        for broker in (1, 2):
            for directory in (self.brokers / f"broker-{broker}").glob(f"{ORDERS}-*"):
                (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")

    def delete_topic(self, *, say_so: bool = True) -> None:
        """Its directories go, and unless nobody says so, the metadata log has the record of its removal."""
        with self.open() as app:
            (topic_id,) = {partition.topic_id for partition in app.adapters.stores.metadata.partitions()}
        for broker in (1, 2):
            log_dir = self.brokers / f"broker-{broker}"
            for directory in log_dir.glob(f"{ORDERS}-*"):
                shutil.rmtree(directory)
            if say_so:
                self.append_metadata(broker, remove_topic(topic_id))

    def append_metadata(self, broker: int, *values: bytes) -> None:
        """One more batch at the end of a broker's metadata log."""
        log_dir = self.brokers / f"broker-{broker}"
        newest = max((log_dir / "__cluster_metadata-0").glob("*.log"))
        end_offset = MetadataLog([log_dir]).log_end_offset
        with newest.open("ab") as log:
            log.write(metadata_batch(end_offset, values))

    def lose_log_dirs(self) -> None:
        for broker in (1, 2):
            shutil.rmtree(self.brokers / f"broker-{broker}")

    def _write_checkpoint(self, path: Path, *lines: str) -> None:
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    def _alter(self, entity: ConfigEntity, configs: Mapping[str, str | int | None]) -> None:
        changes = {name.replace("_", "."): None if value is None else str(value) for name, value in configs.items()}
        with self.open() as app:
            app.configs.alter(entity, changes, author="test")


def document(result: Result, code: int = 0) -> Any:
    """The JSON that a command wrote, after the check of its exit code."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def _lines(path: Path) -> list[str]:
    """The entries of a checkpoint file."""
    return path.read_text().splitlines()[2:]


# A deployment of its own over the bundled log directories, with one planned run.

RUN_ID: Final = "run-1"


def planned_run(directory: Path, *, topics: str = '["*"]') -> Path:
    """Set up a SQLite database and a file store below `directory`, plan one run; returns the settings file."""
    brokers = broker_data("public") / "stopped"
    config = directory / "tiering.toml"
    config.write_text(
        f"""log_dirs = [
  {{broker_id = 1, path = "{brokers / "broker-1"}"}},
  {{broker_id = 2, path = "{brokers / "broker-2"}"}},
]
[metadata]
url = "sqlite:///{directory / "metadata.sqlite"}"
[remote_storage]
url = "{(directory / "store").as_uri()}"
[topics]
include = {topics}
"""
    )
    with open_app(settings_of(config)) as app:
        app.set_up.migrate()
        app.copying.plan(RUN_ID)
    return config


def settings_of(config: Path, environment: Mapping[str, str] = MappingProxyType({})) -> TieringSettings:
    """Nothing of this process's environment."""
    return load_settings(config, environ={"HOME": str(config.parent), **environment})
