"""The platform beside real brokers: `./tiering` with a configuration of its own, and its library in this process."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from include.tiering.app import App, open_app
from include.tiering.settings import load_settings
from tests.doubles.kafka_lab.cluster import KafkaCluster
from tests.doubles.source_tree import ROOT

_COMMAND_SECONDS: Final = 300


@dataclass(frozen=True)
class BrokerDeployment:
    """Reads the log dirs of `cluster` and stores where its brokers look for objects. SQLite, no Airflow, no Spark."""

    cluster: KafkaCluster
    config: Path

    def command(self, *arguments: str, seconds: float = _COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        """`./tiering`; whatever its exit code is, it must not end with a traceback."""
        command = [str(ROOT / "tiering"), "--config", str(self.config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return done

    def document(self, *arguments: str) -> Any:
        """What it prints with `--json`; it must succeed."""
        done = self.command(*arguments, "--json")
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return json.loads(done.stdout)

    def copy_all(self, topic: str) -> list[dict[str, Any]]:
        """Copies what is eligible now and has it verified; what was copied."""
        copied = self.document("copy", "--topic", topic)
        assert copied["failed"] == []
        assert self.document("verify", "--topic", topic)["failed"] == []
        return list(copied["copied"])

    @contextmanager
    def library(self) -> Iterator[App]:
        with open_app(load_settings(self.config)) as opened:
            yield opened


def broker_deployment(
    cluster: KafkaCluster, directory: Path, topics: Sequence[str] = ("*",), *, reads_leaders: bool = False
) -> BrokerDeployment:
    """A new one: its database is made. `directory` must not be within the brokers' or the store's.

    With `reads_leaders` it has no path of the brokers.
    """
    assert cluster.remote_dir is not None, "this cluster has no tiered storage"
    directory.mkdir(parents=True, exist_ok=True)
    dirs = [f'[[log_dirs]]\nbroker_id = {broker.node_id}\npath = "{broker.log_dir}"' for broker in cluster.brokers]
    config = new_deployment(
        directory,
        topics,
        cluster.bootstrap,
        cluster.remote_dir,
        'remote_storage.layout = "local_tiered_storage"',
        # A topic that was written a moment ago seems to grow by megabytes a second, for ever.
        "tiering.handover.hold.hours = 0",
        *(leaders_settings(directory) if reads_leaders else dirs),
    )
    return BrokerDeployment(cluster, config)


def leaders_settings(spool: Path) -> Sequence[str]:
    """Of a deployment that knows bootstrap servers and a store: a segment of a single broker need not settle."""
    return f'leaders.spool_directory = "{spool}"', "leaders.settle_ms = 0"


def new_deployment(directory: Path, topics: Sequence[str], bootstrap: str, store: Path, *settings: str) -> Path:
    """Write the settings file into `directory`, and make the database and the directory of the store.

    Returns:
        The settings file.
    """
    store.mkdir(parents=True, exist_ok=True)
    config = directory / "tiering.toml"
    lines = [
        f"topics.include = {json.dumps(list(topics))}",
        f'cluster.bootstrap_servers = "{bootstrap}"',
        f'remote_storage.url = "file://{store}"',
        f'metadata.url = "sqlite:///{directory}/metadata.sqlite"',
        *settings,
    ]
    config.write_text("\n".join(lines))
    with open_app(load_settings(config)) as app:
        app.set_up.migrate()
    return config
