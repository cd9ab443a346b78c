"""Two brokers' log directories and the commands over them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from include.tiering.cli.app import cli
from tests.doubles.log_dirs import ORDERS, BrokerLogDir, PartitionDirectory
from tests.doubles.metadata_records import config_record, partition_record, topic_record


class TwoBrokers:
    """Topic `orders` on brokers 1 (leader) and 2, whose logs are equal: segments at 0 and 10, the active one at 20.

    `log_dirs` are (broker id, path) as the settings name them, `include` the patterns of topics. No broker is
    asked.
    """

    def __init__(self, directory: Path, configs: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.include = ["orders"]
        self.dirs: dict[int, BrokerLogDir] = {}
        self.partitions: dict[int, PartitionDirectory] = {}
        for broker in (1, 2):
            log_dir = self.dirs[broker] = BrokerLogDir(directory / f"broker-{broker}", broker_id=broker)
            log_dir.append_metadata(
                topic_record("orders", ORDERS),
                partition_record(ORDERS, replicas=(1, 2)),
                *(config_record("orders", key, value) for key, value in (configs or {}).items()),
            )
            self.partitions[broker] = log_dir.partition()
            log_dir.all_current({"orders-0": self.partitions[broker].filled(0, 10, 20)})
        self.log_dirs = [(broker, log_dir.path) for broker, log_dir in self.dirs.items()]
        assert self.run("migrate")[0] == 0

    def configured(self, topic: str, key: str, value: str) -> None:
        for log_dir in self.dirs.values():
            log_dir.append_metadata(config_record(topic, key, value))

    def run(self, *arguments: str) -> tuple[int, Any]:
        """Exit code, and the document; the text where a command has none."""
        wants_text = arguments[0] == "migrate"
        done = self._invoke(*(arguments if wants_text else (*arguments, "--json")))
        return done.exit_code, done.output if wants_text else json.loads(done.stdout)

    def text(self, *arguments: str) -> str:
        """What a command says to people, lines joined."""
        return " ".join(self._invoke(*arguments).output.split())

    def _invoke(self, *arguments: str) -> Any:
        entries = "".join(f'  {{broker_id = {broker}, path = "{path}"}},\n' for broker, path in self.log_dirs)
        config = self.directory / "tiering.toml"
        config.write_text(
            f"""log_dirs = [\n{entries}]
[metadata]
url = "sqlite:///{self.directory / "metadata.sqlite"}"
[remote_storage]
url = "{(self.directory / "store").as_uri()}"
[topics]
include = {json.dumps(self.include)}
"""
        )
        return CliRunner().invoke(cli, ["--config", str(config), *arguments], prog_name="./tiering")
