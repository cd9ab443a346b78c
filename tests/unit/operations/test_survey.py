"""What `./tiering init` finds and writes, over brokers in memory and a store in files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.errors import BrokersForbiddenError
from include.tiering.kafka.fetch_api.contract import Leader
from include.tiering.kafka.protocol.fetch_requests import FetchedPartition
from include.tiering.model.segments import TopicIdPartition
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.model_brokers import CLUSTER_ID, ModelBrokers


@dataclass
class ReadableLogs:
    """Lets everything be read, but the topics that are named."""

    forbidden: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def read(
        self, partition: TopicIdPartition, leader: Leader, offset: int, max_bytes: int
    ) -> Iterator[FetchedPartition]:
        self.asked.append(str(partition))
        if partition.topic in self.forbidden:
            raise BrokersForbiddenError(f"{partition}: the ACL that allows Read on topic {partition.topic} is missing")
        yield FetchedPartition(0, 0, 0, 0, b"")

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Beginner:
    """Runs the command in a directory of their own."""

    directory: Path
    brokers: ModelBrokers = field(default_factory=ModelBrokers)
    logs: ReadableLogs = field(default_factory=ReadableLogs)

    @property
    def config(self) -> Path:
        return self.directory / "tiering.toml"

    @contextmanager
    def opened(self, settings: TieringSettings) -> Iterator[App]:
        with open_app(settings) as app:
            adapters: Any = app.adapters
            adapters.brokers, adapters.leader_logs = self.brokers, self.logs
            yield app

    def run(self, *arguments: str, **environ: str) -> Result:
        runner = CliRunner(env={"HOME": str(self.directory), "TIERING_CONFIG": "", **environ})
        command = ["init", "--output", str(self.config), *arguments]
        return runner.invoke(cli, command, prog_name="./tiering", obj=Session(open_app=self.opened))

    def init(self, *arguments: str, **environ: str) -> Result:
        store = (self.directory / "store").as_uri()
        servers = ["--bootstrap-servers", "broker-1:9092", "--remote-storage", store]
        return self.run(*servers, *arguments, **environ)


@pytest.fixture
def beginner(tmp_path: Path) -> Beginner:
    made = Beginner(tmp_path)
    (tmp_path / "store").mkdir()
    orders = made.brokers.create_topic("orders", partitions=2, configs={"min.insync.replicas": "2"})
    for number in (0, 1):
        partition = made.brokers.partition(orders, number)
        partition.replicas = partition.isr = (1, 2)
        partition.log_bytes = 3 << 20
    made.brokers.create_topic("payments")
    made.brokers.create_topic("state", configs={"cleanup.policy": "compact"})
    return made


def test_what_is_found_is_shown_and_written(beginner: Beginner) -> None:
    result = beginner.init("--topic", "ord*")
    assert result.exit_code == 0, result.output
    assert "Next: export TIERING_CONFIG=" in result.stdout
    assert "is writable, and belongs to no deployment yet" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["orders", "2", "6.0", "MiB", "yes"] in rows
    assert ["state", "1", "0", "B", "compacted", "topic"] in rows
    assert beginner.logs.asked == ["orders-0"]
    assert list((beginner.directory / "store").iterdir()) == []

    text = beginner.config.read_text()
    assert f"# Cluster {CLUSTER_ID}" in text
    assert "#   orders: 2 partitions, 6.0 MiB\n" in text
    assert "#   payments: 1 partition, 0 B, not replicated: each segment settles before it is copied\n" in text
    assert "#   state" not in text
    settings = load_settings(beginner.config, environ={"HOME": str(beginner.directory)})
    assert settings.topics.include == ("ord*",)
    assert settings.cluster.bootstrap_servers == "broker-1:9092"
    assert settings.remote_storage.url == (beginner.directory / "store").as_uri()
    with beginner.opened(settings) as app:
        assert app.set_up.migrate().cluster_id == CLUSTER_ID
        assert app.operations.ready().ready


def test_a_login_is_written_without_its_password(beginner: Beginner) -> None:
    secret = "correct-horse"
    login = {
        "TIERING_CLUSTER__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "TIERING_CLUSTER__SASL_MECHANISM": "PLAIN",
        "TIERING_CLUSTER__SASL_USERNAME": "tiering",
        "TIERING_CLUSTER__SASL_PASSWORD": secret,
    }
    result = beginner.init("--topic", "orders", **login)
    assert result.exit_code == 0, result.output
    text = beginner.config.read_text()
    assert secret not in text + result.output
    assert 'sasl_username = "tiering"\n# sasl_password: set TIERING_CLUSTER__SASL_PASSWORD\n' in text
    settings = load_settings(beginner.config, environ={"HOME": "/", "TIERING_CLUSTER__SASL_PASSWORD": secret})
    assert settings.cluster.sasl_mechanism == "PLAIN"


def test_without_topics_the_candidates_are_named_and_nothing_is_read(beginner: Beginner) -> None:
    result = beginner.init()
    assert result.exit_code == 0
    assert "name topics in topics.include" in result.stdout
    assert beginner.logs.asked == []
    assert load_settings(beginner.config, environ={"HOME": "/"}).topics.include == ()


def forbid_read(beginner: Beginner) -> None:
    beginner.logs.forbidden = {"orders"}


def forbid_sizes(beginner: Beginner) -> None:
    beginner.brokers.fail("log_sizes", BrokersForbiddenError("not authorised for this cluster"), times=None)


def forbid_configs(beginner: Beginner) -> None:
    topics = beginner.brokers.topics

    def described(names: Any = None) -> Any:
        if names is None or "orders" in names:
            raise BrokersForbiddenError("configs of topic orders: not authorised for this topic")
        return topics(names)

    beginner.brokers.topics = described  # type: ignore[method-assign]


def forbid_writes(beginner: Beginner) -> None:
    (beginner.directory / "store").rmdir()
    (beginner.directory / "store").write_text("no directory")


@pytest.mark.parametrize(
    ("forbid", "missing"),
    [
        (forbid_read, "the ACL that allows Read on topic orders is missing"),
        (forbid_sizes, "sizes of logs need Describe on the cluster; copies do not"),
        (forbid_configs, "allow DescribeConfigs on topic orders"),
        (forbid_writes, "store"),
    ],
)
def test_what_is_missing_is_named_and_the_rest_is_found(
    beginner: Beginner, forbid: Callable[[Beginner], None], missing: str
) -> None:
    forbid(beginner)
    result = beginner.init("--topic", "orders")
    assert result.exit_code == 1, result.output
    assert missing in result.stdout
    assert "payments" in result.stdout
    assert beginner.config.exists()


def test_a_store_of_another_deployment_is_not_written(beginner: Beginner) -> None:
    settings = beginner.init("--topic", "orders")
    assert settings.exit_code == 0
    with beginner.opened(load_settings(beginner.config, environ={"HOME": str(beginner.directory)})) as app:
        app.set_up.migrate()
    before = sorted((beginner.directory / "store").rglob("*"))
    beginner.config.unlink()
    beginner.brokers.id = "b3RoZXItY2x1c3Rlci0wMA"
    result = beginner.init("--topic", "orders")
    assert (result.exit_code, "choose another URL" in result.stdout) == (1, True)
    assert sorted((beginner.directory / "store").rglob("*")) == before


def test_a_file_is_never_overwritten(beginner: Beginner) -> None:
    beginner.config.write_text("topics.include = []\n")
    result = beginner.init()
    assert (result.exit_code, "--output names another file" in result.stderr) == (2, True)
    assert beginner.config.read_text() == "topics.include = []\n"


@pytest.mark.parametrize("given", [["--bootstrap-servers", "broker-1:9092"], ["--remote-storage", "file:///srv/store"]])
def test_both_places_are_needed(beginner: Beginner, given: list[str]) -> None:
    if "--bootstrap-servers" not in given:
        beginner.opened = lambda settings: open_app(settings)  # type: ignore[method-assign]
    result = beginner.run(*given)
    assert result.exit_code == 2, result.output
    assert not beginner.config.exists()
