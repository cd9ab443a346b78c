"""Make log directories with real brokers.

    uv run --no-project --python 3.11 --with confluent-kafka --with zstandard python tests/data/regenerate OUT

OUT/public: two brokers, copied while they ran and after a clean stop. OUT/crash: one broker with preallocated
segments, copied while it ran, after kill -9, and after recovery and a clean stop. Each gets an `expected.json` with
what Kafka's own classes and the brokers say, and is packed as OUT/kafka-<name>.tar.zst.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard
from broker_lab import Broker, Java, fetch_jars, free_port, stop_all
from workload import (
    CODECS,
    admin_client,
    create_topic,
    delete_records,
    offsets,
    producer,
    transaction,
    transactional,
    write,
)

_CACHE = Path(__file__).resolve().parents[3] / ".cache"
_KAFKA = "4.3.1"
# Longer than the period in which brokers write their checkpoints.
_CHECKPOINT_SECONDS = 7.0


def make_public(java: Java, out: Path, work: Path) -> dict[str, Any]:
    controller_port = free_port()
    brokers = [Broker(java, node, work, free_port(), controller_port) for node in (1, 2)]
    start_cluster(java, brokers)
    try:
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        admin = admin_client(servers)
        create_topic(admin, "orders", [[2], [1], [2]])
        create_topic(admin, "payments.v1-eu", [[2, 1]])
        create_topic(admin, "replicated", [[1, 2], [2, 1]])
        create_topic(
            admin, "state-compacted", [[1]], {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        )
        create_topic(admin, "trimmed", [[1]])
        create_topic(admin, "never-written", [[1]])
        writers = [producer(servers, compression_type=codec, enable_idempotence=True) for codec in CODECS]
        payer, doubter, open_ended = (transactional(servers, name) for name in ("payer", "doubter", "open-ended"))
        for era in range(3):
            say(f"writing, leader epoch round {era}")
            for codec, writer in enumerate(writers):
                numbers = range(era * 500 + codec * 100, era * 500 + codec * 100 + 100)
                write(writer, "orders", 0, numbers)
                write(writer, "orders", 1, numbers)
                write(writer, "replicated", codec % 2, numbers)
                write(writer, "state-compacted", 0, numbers, headers=False)
                write(writer, "trimmed", 0, numbers)
            for step in range(4):
                numbers = range(era * 200 + step * 50, era * 200 + step * 50 + 50)
                transaction(doubter if step == 2 else payer, "payments.v1-eu", numbers, commit=step != 2)
                write(writers[0], "payments.v1-eu", 0, numbers)
            if era < 2:
                brokers[1].stop()
                brokers[1].start()
        transaction(open_ended, "payments.v1-eu", range(1000, 1040), commit=None)
        write(writers[0], "payments.v1-eu", 0, range(1000, 1400))
        delete_records(admin, "trimmed", 0, 333)
        time.sleep(_CHECKPOINT_SECONDS)
        partitions = [("orders", 0), ("orders", 1), ("orders", 2), ("payments.v1-eu", 0), ("replicated", 0)]
        partitions += [("replicated", 1), ("state-compacted", 0), ("trimmed", 0), ("never-written", 0)]
        facts = offsets(servers, partitions)
        copy_log_dirs(brokers, out / "running")
    finally:
        stop_all(brokers)
    copy_log_dirs(brokers, out / "stopped")
    return {"offsets": facts}


def make_crash(java: Java, out: Path, work: Path) -> dict[str, Any]:
    broker = Broker(java, 1, work, free_port(), free_port(), {"log.preallocate": "true"})
    start_cluster(java, [broker])
    try:
        servers = f"127.0.0.1:{broker.port}"
        admin = admin_client(servers)
        create_topic(admin, "prealloc", [[1]], {"preallocate": "true"})
        create_topic(admin, "normal", [[1]], {"preallocate": "false"})
        writer = producer(servers, compression_type="none", enable_idempotence=True)
        open_ended = transactional(servers, "open-ended")
        for topic in ("prealloc", "normal"):
            write(writer, topic, 0, range(300))
            transaction(open_ended, topic, range(300, 320), commit=True)
        for topic in ("prealloc", "normal"):
            write(writer, topic, 0, range(320, 400))
        transaction(open_ended, "prealloc", range(400, 420), commit=None)
        facts = offsets(servers, [("prealloc", 0), ("normal", 0)])
        copy_log_dirs([broker], out / "running")
        broker.kill()
        copy_log_dirs([broker], out / "killed")
        broker.start()
        recovered = offsets(servers, [("prealloc", 0), ("normal", 0)])
    finally:
        stop_all([broker])
    copy_log_dirs([broker], out / "recovered-stopped")
    return {"offsets": facts, "offsets_after_recovery": recovered}


def start_cluster(java: Java, brokers: list[Broker]) -> None:
    cluster_id = java.tool("kafka.tools.StorageTool", "random-uuid").strip()
    for broker in brokers:
        broker.format(cluster_id)
    try:
        for broker in brokers:
            broker.start(wait=False)
        for broker in brokers:
            broker.wait_until_ready()
    except BaseException:
        for broker in brokers:
            broker.kill()
        raise


def copy_log_dirs(brokers: list[Broker], target: Path) -> None:
    target.mkdir(parents=True)
    for broker in brokers:
        subprocess.run(["cp", "-a", "--sparse=always", str(broker.log_dir), str(target)], check=True)


def write_expected(java: Java, out: Path, name: str, facts: dict[str, Any], work: Path) -> None:
    """Facts of every copy. Kafka's classes may write into what they open, so they get a copy of the copy."""
    snapshots: dict[str, dict[str, Any]] = {}
    for log_dir in sorted(out.glob("*/broker-*")):
        scratch = work / "facts" / log_dir.parent.name / log_dir.name
        shutil.copytree(log_dir, scratch)
        say(f"asking Kafka's classes about {log_dir.relative_to(out)}")
        snapshots.setdefault(log_dir.parent.name, {})[log_dir.name] = json.loads(java.log_facts(scratch))
        shutil.rmtree(scratch)
    document = {"set": name, "kafka_version": _KAFKA, "facts": facts, "snapshots": snapshots}
    (out / "expected.json").write_text(json.dumps(document, indent=1, sort_keys=True))


def pack(tree: Path, archive: Path) -> None:
    """A sparse tar, compressed: preallocated indexes are megabytes of nothing."""
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
    with subprocess.Popen(
        ["tar", "--sparse", "--owner=root", "--group=root", "-cf", "-", tree.name],
        cwd=tree.parent,
        stdout=subprocess.PIPE,
    ) as tar:
        assert tar.stdout is not None
        with archive.open("wb") as packed:
            zstandard.ZstdCompressor(compression_params=parameters).copy_stream(tar.stdout, packed)
    if tar.returncode:
        raise subprocess.CalledProcessError(tar.returncode, tar.args)


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make log directories with real Kafka brokers.")
    parser.add_argument("out", type=Path, help="directory for the sets; must not exist")
    parser.add_argument("--only", choices=("public", "crash"), help="one set instead of both")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    java = Java(fetch_jars(_CACHE / f"kafka-{_KAFKA}" / "libs"))
    for name, make in (("public", make_public), ("crash", make_crash)):
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="broker-lab-") as work:
                out = arguments.out / f"kafka-{name}"
                facts = make(java, out, Path(work) / "cluster")
                write_expected(java, out, name, facts, Path(work))
            pack(out, arguments.out / f"kafka-{name}.tar.zst")
    return 0


if __name__ == "__main__":
    sys.exit(main())
