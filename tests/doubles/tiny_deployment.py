"""A deployment that is set up in a moment: one partition of one broker, a database and a store in files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.clock import Clock, SystemClock
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.orphans import TinyCopies
from tests.doubles.segments import uuid

PARTITION = TopicIdPartition(ORDERS, 0, "orders")
LOG_START = 1_000
"""Of the broker's log: what is below is in the store alone."""


class TinyDeployment:
    """`clock` is that of the process, this machine's by default; the database has its own."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self.store = directory / "store"
        self._clock = clock or SystemClock()
        self._environ = {
            "HOME": str(directory),
            "TIERING_LOG_DIRS": f"1:{directory / 'broker-1'}",
            "TIERING_METADATA__URL": f"sqlite:///{directory / 'tiering.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": self.store.as_uri(),
            "TIERING_TOPICS__INCLUDE": "orders",
        }
        log_dir = BrokerLogDir(directory / "broker-1")
        log_dir.create_topic()
        log_dir.partition().filled(LOG_START, LOG_START + 10)
        log_dir.all_current({"orders-0": LOG_START + 10})
        with self.open() as app:
            app.set_up.migrate()

    @contextmanager
    def open(self, _settings: Any = None) -> Iterator[App]:
        with open_app(load_settings(environ=self._environ), clock=self._clock) as app:
            yield app

    def copied(self, segments: int) -> Sequence[RemoteLogSegmentMetadata]:
        """Complete copies of ten offsets each, the first at offset 10; their records are of the year 2020."""
        with self.open() as app:
            copies = TinyCopies.into(app, PARTITION)
            made = [copies.copy() for _ in range(segments)]
            app.adapters.stores.work.release(copies.lease)
        return made

    def plant_log(self) -> Path:
        """A log and its indexes that no metadata knows, where `PARTITION` has its objects."""
        log = self.store / f"orders-{ORDERS}" / "0" / f"{10:020d}-{uuid(5)}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"a log")
        log.with_suffix(".indexes").write_bytes(b"its indexes")
        return log

    def set(self, entity: ConfigEntity | None = None, **configs: str) -> None:
        """Dynamic configs, by default those of the topic; underscores stand for dots."""
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        with self.open() as app:
            app.configs.alter(entity or ConfigEntity(EntityType.TOPICS, "orders"), changes, author="test")

    def run(self, *arguments: str) -> Result:
        """A command in this process."""
        session = Session(open_app=self.open)
        return CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments, obj=session, prog_name="./tiering")
