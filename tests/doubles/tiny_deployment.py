"""Deployments of one partition, and of a cluster whose metadata topic is read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.clock import Clock, SystemClock
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.json_shapes import checked
from tests.doubles.kafkas_remote_store import kafkas_store
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.orphans import TinyCopies
from tests.doubles.segments import uuid
from tests.doubles.tiered_topic import tiered_topic

# A deployment that is set up in a moment: one partition of one broker, a database and a store in files.

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

    @property
    def environ(self) -> dict[str, str]:
        """The variables of its processes."""
        return dict(self._environ)

    def set_environ(self, **variables: str) -> None:
        """Variables of all that is opened from now on."""
        self._environ |= variables

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
        done = CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments, obj=session, prog_name="./tiering")
        return checked(arguments, done)


# Clusters that a test observes or mocks.

# A cluster whose brokers tier by themselves, observed: its log dir, its remote dir and its metadata topic, without
# a broker.

BROKER_ID = 5


@dataclass
class ObservedCluster:
    """A deployment of its own in `directory`; `topic` stands for the brokers' metadata topic."""

    directory: Path
    topic: MemoryMetadataTopic = field(default_factory=tiered_topic)

    def __post_init__(self) -> None:
        self.store = kafkas_store(self.directory / "remote")
        self.config = self.directory / "tiering.toml"
        self.config.write_text(
            f"""
            tiering.audit.min.age.ms = 0
            [metadata]
            url = "sqlite:///{self.directory / "metadata.sqlite"}"
            [remote_storage]
            url = "{self.store.as_uri()}"
            layout = "local_tiered_storage"
            [topics]
            include = ["*"]
            [[log_dirs]]
            broker_id = {BROKER_ID}
            path = "{broker_data("tiered") / "data-stopped"}"
            """
        )
        with self.opened() as app:
            app.set_up.migrate()

    def opened(self) -> AbstractContextManager[App]:
        return self._open(load_settings(self.config))

    def run(self, *arguments: str) -> Result:
        """A command of `./tiering`."""
        session = Session(None, self._open)
        options = ["--config", str(self.config), *arguments]
        return checked(arguments, CliRunner().invoke(cli, options, obj=session, prog_name="./tiering"))

    def document(self, *arguments: str, code: int = 0) -> Any:
        """What a command writes with --json."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == code, (result.exit_code, result.stdout[-2_000:], result.stderr)
        return json.loads(result.stdout)

    @contextmanager
    def _open(self, settings: TieringSettings) -> Iterator[App]:
        with open_app(settings) as app:
            app.adapters.metadata_topic_reader = self.topic
            yield app


# librdkafka's own mock of a cluster: a broker on loopback, in this process, which real clients of librdkafka talk
# to. It answers requests for metadata, offsets and records, and takes records. It has no controller: nothing that
# an administrator asks for.

PARTITIONS: Final = 4
"""Of each topic."""
ClientConfig = dict[str, str | int]
_QUIET: Final[ClientConfig] = {"log_level": 0}
_TIMEOUT_SECONDS: Final = 30.0


class MockCluster:
    """It ends with its last reference."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored:1", **_QUIET})

    @property
    def config(self) -> ClientConfig:
        """Of a client."""
        (broker,) = self._owner.list_topics(timeout=_TIMEOUT_SECONDS).brokers.values()
        return {"bootstrap.servers": f"{broker.host}:{broker.port}", **_QUIET}

    def create_topic(self, name: str) -> None:
        """A topic appears when a client asks for it that may create some."""
        found = self._owner.list_topics(name, timeout=_TIMEOUT_SECONDS).topics[name]
        assert len(found.partitions) == PARTITIONS

    def append(self, topic: str, partition: int, *values: bytes | None, key: bytes | None = None) -> None:
        """Records with a header each; their timestamps are 1,000, 2,000, ..."""
        for number, value in enumerate(values, start=1):
            headers: list[tuple[str, str | bytes | None]] = [("number", b"%d" % number), ("nothing", None)]
            self._owner.produce(topic, value, key, partition, timestamp=1_000 * number, headers=headers)
        assert self._owner.flush(_TIMEOUT_SECONDS) == 0
