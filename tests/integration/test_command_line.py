"""The main job by `./tiering` alone: real files of real brokers, real store, real database."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import open_app
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.source_tree import ROOT

Command = Callable[..., subprocess.CompletedProcess[str]]


def command_line(tmp_path: Path, log_dirs: Path) -> Command:
    """`./tiering --config ...` with a file store and SQLite below `tmp_path`."""
    config = tmp_path / "tiering.toml"
    config.write_text(
        "\n".join(
            [
                'topics.include = ["*"]',
                f'remote_storage.url = "file://{tmp_path}/store"',
                f'metadata.url = "sqlite:///{tmp_path}/metadata.sqlite"',
                *(f'[[log_dirs]]\nbroker_id = {n}\npath = "{log_dirs}/broker-{n}"' for n in (1, 2)),
            ]
        )
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "tiering"), "--config", str(config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def app(tmp_path: Path) -> Command:
    run = command_line(tmp_path, broker_data("public") / "stopped")
    with open_app(load_settings(tmp_path / "tiering.toml")) as opened:
        opened.set_up.migrate()
    return run


def document(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_copied_verified_sized_and_read_back_is_what_the_broker_wrote(app: Command, tmp_path: Path) -> None:
    assert document(app("ready", "--json"))["ready"]
    scanned = document(app("scan", "--json"))["partitions"]
    eligible = {
        (partition["topic"], partition["partition"], segment["base_offset"]): segment["size_bytes"]
        for partition in scanned
        for segment in partition["segments"]
        if segment["eligible"]
    }
    copied = document(app("copy", "--json"))
    assert {(c["topic"], c["partition"], c["start_offset"]): c["bytes"] for c in copied["copied"]} == eligible
    assert (copied["failed"], copied["bytes"]) == ([], sum(eligible.values()))
    assert document(app("verify", "--json")) | {"bytes_read": 0} == {
        "segments": len(eligible),
        "failed": [],
        "warnings": [],
        "not_opened": [],
        "not_served": [],
        "bytes_read": 0,
    }
    sizes = document(app("sizes", "--json"))["partitions"]
    assert sum(partition["bytes"] for partition in sizes) == sum(eligible.values())
    fetched = document(app("fetch", "orders", "0", "--output", str(tmp_path / "out"), "--json"))
    assert [s["start_offset"] for s in fetched["segments"]] == sorted(
        o for t, p, o in eligible if (t, p) == ("orders", 0)
    )
    source = broker_data("public") / "stopped" / "broker-1" / "orders-0"
    for segment in fetched["segments"]:
        path = Path(segment["path"])
        assert path.read_bytes() == (source / path.name).read_bytes()


def test_log_dirs_and_sizes_say_what_is_where_and_what_waits(app: Command) -> None:
    waiting = document(app("sizes", "--topic", "orders", "--json"))
    assert waiting["partitions"] == []
    assert sum(lag["segments"] for lag in waiting["copy_lag"]) > 0
    copied = document(app("copy", "--topic", "orders", "--json"))
    assert {c["topic"] for c in copied["copied"]} == {"orders"}
    assert sum(lag["bytes"] for lag in waiting["copy_lag"]) == copied["bytes"]
    nothing = document(app("sizes", "--topic", "orders", "--json"))
    assert {lag["segments"] for lag in nothing["copy_lag"]} == {0}
    assert sum(one["local_bytes"] for one in nothing["duplicates"]) == copied["bytes"]
    described = document(app("log-dirs", "--json"))
    assert described["version"] == 1
    shown = [
        partition
        for broker in described["brokers"]
        for log_dir in broker["logDirs"]
        for partition in log_dir["partitions"]
    ]
    assert {len(log_dir["partitions"]) > 0 for broker in described["brokers"] for log_dir in broker["logDirs"]} == {
        True
    }
    assert sum(partition["remoteSize"] for partition in shown) == copied["bytes"]
    assert sum(partition["size"] for partition in described["remote"]) == copied["bytes"]


def test_a_limit_of_bytes_takes_whole_segments_and_the_next_copy_goes_on_until_nothing_is_left(
    app: Command,
) -> None:
    limited = document(app("copy", "--topic", "orders", "--limit-bytes", "70000", "--json"))
    assert 0 < limited["bytes"] <= 70_000
    rest = document(app("copy", "--topic", "orders", "--json"))
    assert rest["copied"]
    assert document(app("copy", "--topic", "orders", "--json"))["copied"] == []
    everything = document(app("sizes", "--json"))["partitions"]
    assert sum(partition["bytes"] for partition in everything) == limited["bytes"] + rest["bytes"]


def test_a_damaged_segment_stops_its_partition_and_no_other(tmp_path: Path) -> None:
    log_dirs = copy_of("public", tmp_path, part="stopped")
    damaged = sorted((log_dirs / "broker-1" / "orders-0").glob("*.log"))[2]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0x10
    damaged.write_bytes(content)
    app = command_line(tmp_path, log_dirs)
    assert app("migrate").returncode == 0
    copied = document(app("copy", "--json"), code=1)
    (failed,) = copied["failed"]
    assert (failed["topic"], failed["partition"], failed["base_offset"]) == ("orders", 0, int(damaged.stem))
    assert (failed["error"], Path(failed["path"]).name) == ("CorruptFileError", damaged.name)
    assert 0 < failed["position"] < len(content)
    lags = document(app("sizes", "--topic", "orders", "--json"))["copy_lag"]
    assert [lag["segments"] > 0 for lag in lags] == [lag["partition"] == 0 for lag in lags]
    orders_0 = [c["start_offset"] for c in copied["copied"] if (c["topic"], c["partition"]) == ("orders", 0)]
    assert len(orders_0) == 2
    assert {"orders", "trimmed", "replicated", "payments.v1-eu"} <= {c["topic"] for c in copied["copied"]}
    assert app("scan", "--deep").returncode == 1


def test_before_set_up_every_command_that_needs_the_database_is_refused(tmp_path: Path) -> None:
    app = command_line(tmp_path, broker_data("public") / "stopped")
    for arguments in (["copy"], ["sizes"], ["verify"], ["pause"]):
        done = app(*arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("error: ")
    assert app("scan", "--json").returncode == 0


def test_two_copies_at_once_make_one_set_of_objects(app: Command, tmp_path: Path) -> None:
    command = [str(ROOT / "tiering"), "--config", str(tmp_path / "tiering.toml"), "copy", "--topic", "orders", "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    documents = [json.loads(process.communicate(timeout=600)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    copied = [(c["partition"], c["start_offset"]) for d in documents for c in d["copied"]]
    assert len(copied) == len(set(copied)) > 0
    logs = list((tmp_path / "store").rglob("*.log"))
    assert len(logs) == len(copied)
