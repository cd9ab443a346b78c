"""Two brokers with two histories of one partition."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.app.adapters import Adapters
from include.tiering.cli.app import cli
from include.tiering.verification.suites import PARTITION_RULES
from tests.doubles.log_dirs import LOG_STARTS, ORDERS, BrokerLogDir, PartitionDirectory
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.record_batches import record, record_batch
from tests.doubles.tiered_topic import config_record, partition_record, topic_record

# Topic `orders` of one partition over a log directory: an archive of one history, then an unclean election, and the
# commands over it.

WHY = "consumers read the new leader, agreed in OPS-12"
OLD, OLD_BASES, OLD_END = [(0, 0), (4, 50)], tuple(range(0, 80, 10)), 75
NEW, NEW_BASES, NEW_END = [(0, 0), (6, 35)], (0, 10, 20, 30, 40, 52, 65, 78, 91), 100
BACK, BACK_BASES, BACK_END = [(0, 0), (4, 50), (10, 75)], (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 115), 125
DIVERGENCE = "offsets 35..69 are remote under other leader epochs than the source has (epochs 0, 4; source: epoch 6)"


class Cluster:
    """Topic `orders`, of one partition; what lies below offset 70 is remote and served."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_dir = BrokerLogDir(directory / "broker-1")
        self.log_dir.append_metadata(topic_record("orders", ORDERS), partition_record(ORDERS))
        self.partition = self.log_dir.partition()
        self.config = directory / "tiering.toml"
        self.config.write_text(
            f"""log_dirs = [{{broker_id = 1, path = "{self.log_dir.path}"}}]
[metadata]
url = "sqlite:///{directory / "metadata.sqlite"}"
[remote_storage]
url = "{(directory / "store").as_uri()}"
[topics]
include = ["orders"]
"""
        )
        assert self.text("migrate")[0] == 0
        self.writes(OLD, OLD_BASES, OLD_END)
        assert self.run("copy")[0] == 0
        assert self.run("verify")[0] == 0

    def writes(self, epochs: list[tuple[int, int]], bases: tuple[int, ...], end: int, log_start: int = 0) -> None:
        """The log as the leader has it now: segments wholly below its start are gone, its history is cut there."""
        for path in self.partition.path.glob("0*"):
            path.unlink()
        for base, following in pairwise((*bases, end)):
            if following > log_start:
                batches = [batch(epoch, at, count) for epoch, at, count in plan_of(epochs, base, following)]
                self.partition.segment(base, batches, next_base=None if following == end else following)
        before = [epoch for epoch, start in epochs if start <= log_start]
        after = [(epoch, start) for epoch, start in epochs if start > log_start]
        self.partition.epochs([(before[-1], log_start), *after])
        self.log_dir.all_current({"orders-0": end})
        self.log_dir.checkpoint(LOG_STARTS, {"orders-0": log_start})

    def elect_unclean(self, log_start: int = 0) -> None:
        """The new leader had offsets 0..34."""
        self.writes(NEW, NEW_BASES, NEW_END, log_start)

    def text(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["--config", str(self.config), *arguments], prog_name="./tiering")
        return done.exit_code, done.output

    def run(self, *arguments: str) -> tuple[int, Any]:
        command = ["--config", str(self.config), *arguments, "--json"]
        done = CliRunner().invoke(cli, command, prog_name="./tiering")
        return done.exit_code, json.loads(done.stdout or "null")

    def decide(self, from_offset: int, *options: str) -> tuple[int, str]:
        asked = ("skip", "orders", "--partition", "0", "--follow-source-from", str(from_offset), "--reason", WHY)
        return self.text(*asked, *options)

    def follow(self, from_offset: int) -> None:
        """What waits is decided, and copied."""
        assert self.run("plan")[0] == 1
        code, said = self.decide(from_offset, "--approve")
        assert code == 0, said
        assert self.run("copy")[0] == 0

    def require_quiet(self) -> None:
        """Source and archive agree, and nothing waits."""
        code, report = self.run("verify")
        assert (code, report["warnings"]) == (0, [])
        for command in ("plan", "copy"):
            code, document = self.run(command)
            assert (code, document["held_back"]) == (0, [])

    def read(self, offset: int, *options: str) -> tuple[list[tuple[int, int]], dict[str, Any]]:
        """(epoch, first offset) of the batches that a fetch from the offset writes, and its document."""
        target = self.directory / "read"
        code, document = self.run("fetch", "orders", "0", "--output", str(target), "--offset", str(offset), *options)
        assert code == 0
        content, found = Path(document["path"]).read_bytes(), []
        known = {batch(*one): one[:2] for one in every_batch()}
        while content:
            size = 12 + int.from_bytes(content[8:12], "big")
            found.append(known[content[:size]])
            content = content[size:]
        return found, document


def evaluate_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifications apply the rules without Great Expectations."""
    monkeypatch.setattr(Adapters, "segment_evaluator", lambda *_: PlainEvaluator())
    monkeypatch.setattr(Adapters, "partition_evaluator", lambda *_: PlainEvaluator(PARTITION_RULES))


def plan_of(epochs: list[tuple[int, int]], base: int, end: int) -> list[tuple[int, int, int]]:
    """(epoch, base offset, records) of batches of at most five, none of which spans two epochs."""
    cuts = sorted({base, end, *(start for _, start in epochs if base < start < end)})
    return [
        (max(epoch for epoch, start in epochs if start <= at), at, min(5, after - at))
        for before, after in pairwise(cuts)
        for at in range(before, after, 5)
    ]


def batch(epoch: int, base: int, count: int) -> bytes:
    """Its records say which epoch wrote them: two histories have nothing in common but offsets."""
    values = b"".join(record(delta, f"{epoch}:{base + delta}".encode()) for delta in range(count))
    return record_batch(base, count=count, leader_epoch=epoch, timestamp_ms=1_700_000_000_000 + base, records=values)


def every_batch() -> list[tuple[int, int, int]]:
    logs = ((OLD, OLD_BASES, OLD_END), (NEW, NEW_BASES, NEW_END), (BACK, (*BACK_BASES, 130), 140))
    return [one for epochs, bases, end in logs for pair in pairwise((*bases, end)) for one in plan_of(epochs, *pair)]


def offsets(found: list[tuple[int, int]], epoch: int) -> list[int]:
    return [base for each, base in found if each == epoch]


# Two brokers' log directories and the commands over them.


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
