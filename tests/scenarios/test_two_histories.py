"""An unclean election over copied records, by the command line: it is named whatever the source forgets, a person
decides, and what is read back is one history."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import app
from include.tiering.cli.session import author
from include.tiering.quality.partition_rules import PARTITION_RULES
from include.tiering.wiring.quality_verbs import QualityVerbs
from tests.doubles.log_dirs import LOG_STARTS, ORDERS, BrokerLogDir
from tests.doubles.metadata_records import partition_record, topic_record
from tests.doubles.plain_judge import PlainJudge
from tests.doubles.record_batches import record, record_batch

pytestmark = pytest.mark.integration

WHY = "consumers read the new leader, agreed in OPS-12"
OLD, OLD_BASES, OLD_END = [(0, 0), (4, 50)], tuple(range(0, 80, 10)), 75
NEW, NEW_BASES, NEW_END = [(0, 0), (6, 35)], (0, 10, 20, 30, 40, 52, 65, 78, 91), 100
FORK = "offsets 35..69 are remote under other leader epochs than the source has (epochs 0, 4; source: epoch 6)"


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
        done = CliRunner().invoke(app, ["--config", str(self.config), *arguments], prog_name="./tiering")
        return done.exit_code, done.output

    def run(self, *arguments: str) -> tuple[int, Any]:
        command = ["--config", str(self.config), *arguments, "--json"]
        done = CliRunner().invoke(app, command, prog_name="./tiering")
        return done.exit_code, json.loads(done.stdout or "null")

    def decide(self, from_offset: int, *options: str) -> tuple[int, str]:
        asked = ("skip", "orders", "--partition", "0", "--follow-source-from", str(from_offset), "--reason", WHY)
        return self.text(*asked, *options)

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
    logs = ((OLD, OLD_BASES, OLD_END), (NEW, NEW_BASES, NEW_END))
    return [one for epochs, bases, end in logs for pair in pairwise((*bases, end)) for one in plan_of(epochs, *pair)]


def offsets(found: list[tuple[int, int]], epoch: int) -> list[int]:
    return [base for each, base in found if each == epoch]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(QualityVerbs, "segment_judge", lambda *_: PlainJudge())
    monkeypatch.setattr(QualityVerbs, "partition_judge", lambda *_: PlainJudge(PARTITION_RULES))
    return Cluster(tmp_path)


@pytest.mark.parametrize("log_start", [0, 56, 70, 95])
def test_what_was_seen_once_is_said_by_every_command(cluster: Cluster, log_start: int) -> None:
    cluster.elect_unclean()
    assert cluster.run("copy")[0] == 1
    cluster.elect_unclean(log_start)
    follow_from = max(35, log_start)
    for command in (["plan"], ["copy"]):
        code, document = cluster.run(*command)
        (held,) = document["held_back"]
        assert (code, held["next_offset"], held["follow_from"]) == (1, 35, follow_from)
        assert held["detail"].startswith(FORK)
    code, said = cluster.text("doctor", "orders")
    assert code == 1
    assert FORK in " ".join(said.split())
    assert f"--follow-source-from {follow_from}" in " ".join(said.split())
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", WHY, "--approve")
    assert (code, "nothing to skip" in said) == (1, True)
    found, document = cluster.read(33)
    assert {epoch for epoch, _ in found} == {0, 4}
    assert document["said"] == [f"offsets 35..69: {FORK}; nobody decided about it"]


def test_by_decision_one_history_is_read_and_the_other_one_by_its_epoch(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    code, said = cluster.decide(35)
    assert (code, "nothing is decided: without a terminal it needs --approve" in said) == (1, True)
    assert cluster.run("plan")[0] == 1
    code, said = cluster.decide(34, "--approve")
    assert code == 1
    assert "the source can be followed from offset 35 on, not from 34" in said
    code, said = cluster.decide(35, "--approve")
    assert code == 0
    assert "offsets 35..69 stay as they are, for those who ask by leader epoch" in said
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert cluster.text("doctor", "orders")[0] == 0

    before, document = cluster.read(0)
    assert offsets(before, 0) == [*range(0, 35, 5)]
    assert (document["next_offset"], {epoch for epoch, _ in before}) == (35, {0})
    behind, document = cluster.read(35)
    assert ({epoch for epoch, _ in behind}, behind[0][1], document["next_offset"]) == ({6}, 35, 91)
    assert f"followed, by {author()} ({WHY})" in document["said"][0]
    old, document = cluster.read(40, "--epoch", "0")
    assert ({epoch for epoch, _ in old}, document["next_offset"]) == ({0, 4}, 70)
    assert document["said"][0].startswith("offsets 40..69 are of the history that the source has replaced")

    code, document = cluster.run("fetch", "orders", "0", "--output", str(cluster.directory / "all"))
    left = [one["start_offset"] for one in document["segments"] if one["by_decision"]]
    written = [(one["start_offset"], one["history"]) for one in document["segments"] if one["path"]]
    assert (code, left) == (0, [40, 50, 60])
    assert written == [(0, 0), (10, 0), (20, 0), (30, 1), (30, 0), (40, 1), (52, 1), (65, 1), (78, 1)]
    assert len({one["path"] for one in document["segments"] if one["path"]}) == len(written)


def test_decided_after_the_log_start_passed_both_losses_are_said(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    cluster.elect_unclean(80)
    code, said = cluster.decide(80, "--approve")
    assert code == 0, said
    assert "45 offsets of the source's history, 35..79, will be missing from the archive for ever" in said
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    found, document = cluster.read(33)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0, 4}, 70)
    assert document["said"][0].startswith("offsets 35..69 are of the history that the source has replaced")
    code, said = cluster.text("fetch", "orders", "0", "--output", str(cluster.directory / "x"), "--offset", "75")
    assert (code, "go on at offset 80" in said) == (1, True)
    assert cluster.read(80)[0][0] == (6, 78)


def test_what_is_not_remote_any_more_keeps_nothing_waiting(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    assert cluster.run("delete-records", "orders", "--partition", "0", "--before-offset", "70", "--approve")[0] == 0
    assert cluster.run("expire", "--topic", "orders", "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert {epoch for epoch, _ in cluster.read(70)[0]} == {6}
