"""Evidence of handovers, and rehearsals."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from include.tiering.handover.checks import (
    BrokerCapabilities,
    BrokerDiskSpace,
    FrozenPartition,
    HandoverEvidence,
    HandoverPartition,
    LeaderOffsets,
    LeaderReplica,
    MetadataTopicState,
    SeededSegment,
    StoreProperties,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Verdict
from tests.doubles.kafka_lab.artifacts import jars
from tests.doubles.present import present
from tests.doubles.segments import FINISHED, partition_of, segment_of
from tests.doubles.source_tree import ROOT

# Evidence about a handover in which every check passes; tests change what is to be refused.

ORDERS: Final = partition_of("orders")
EPOCHS: Final = LeaderEpochs.of([(0, 0), (3, 150)])
NOW_MS: Final = 1_600_000_500_000
_MANAGER: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_OFFSETS: Final = LeaderOffsets(1, 4, 1, 0, None, 320, 320)


def sound_evidence() -> HandoverEvidence:
    """One broker, one partition: segments 0..99, 100..199, 200..299 are remote, the active one begins at 300."""
    spans = ((0, 99, {0: 0}), (100, 199, {0: 100, 3: 150}), (200, 299, {3: 200}))
    seed = tuple(
        SeededSegment(segment_of(ORDERS, number, start, end, epochs, state=FINISHED), Verdict.PASSED)
        for number, (start, end, epochs) in enumerate(spans)
    )
    return HandoverEvidence(
        topic=ORDERS.topic,
        topic_id=ORDERS.topic_id,
        topic_id_now=ORDERS.topic_id,
        owner=TopicOwner.HANDING_OVER,
        brokers=(BrokerCapabilities(1, True, _MANAGER, "/srv/remote", True),),
        configs={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "local.retention.ms": "-2"},
        old_configs={"retention.ms": "604800000", "retention.bytes": "900000"},
        partitions=(HandoverPartition(0, _OFFSETS, LeaderReplica(1, EPOCHS, 300, 300, (), 1_000.0), seed),),
        metadata_topic=MetadataTopicState({"retention.ms": "-1", "cleanup.policy": "delete"}),
        store=StoreProperties("local_tiered_storage", "/srv/remote", False),
        disks=(BrokerDiskSpace(1, 10**9),),
        frozen={0: FrozenPartition(0, 0, 299, 0, 1, 4)},
        now_ms=NOW_MS,
        hold_seconds=3_600,
    )


def with_partition(
    evidence: HandoverEvidence, change: Callable[[HandoverPartition], HandoverPartition]
) -> HandoverEvidence:
    return replace(evidence, partitions=tuple(map(change, evidence.partitions)))


def with_offsets(evidence: HandoverEvidence, **values: Any) -> HandoverEvidence:
    return with_partition(evidence, lambda one: replace(one, offsets=replace(present(one.offsets), **values)))


def with_replica(evidence: HandoverEvidence, **values: Any) -> HandoverEvidence:
    return with_partition(evidence, lambda one: replace(one, replica=replace(present(one.replica), **values)))


def with_broker(evidence: HandoverEvidence, **values: Any) -> HandoverEvidence:
    return replace(evidence, brokers=tuple(replace(broker, **values) for broker in evidence.brokers))


def with_configs(evidence: HandoverEvidence, **values: str) -> HandoverEvidence:
    return replace(
        evidence, configs={**evidence.configs, **{name.replace("_", "."): value for name, value in values.items()}}
    )


def with_segment(evidence: HandoverEvidence, number: int, **values: Any) -> HandoverEvidence:
    """Another verdict or list of broken rules, or another value of its metadata."""
    own = {name: values.pop(name) for name in ("verdict", "broken") if name in values}

    def changed(one: HandoverPartition) -> HandoverPartition:
        seed = list(one.seed)
        seed[number] = replace(seed[number], metadata=replace(seed[number].metadata, **values), **own)
        return replace(one, seed=tuple(seed))

    return with_partition(evidence, changed)


def without_segments(evidence: HandoverEvidence, *numbers: int) -> HandoverEvidence:
    def changed(one: HandoverPartition) -> HandoverPartition:
        return replace(one, seed=tuple(each for number, each in enumerate(one.seed) if number not in numbers))

    return with_partition(evidence, changed)


# `./tiering handover --rehearse` over nothing but log directories: no brokers, no database, no store.

_REHEARSAL_SECONDS: Final = 700


def rehearsed(directory: Path, log_dirs: Sequence[Path], topic: str, version: str, *more: str) -> dict[str, Any]:
    """The document of a rehearsal that succeeds; its configuration is written into `directory`."""
    config = directory / "tiering.toml"
    tables = [f'[[log_dirs]]\nbroker_id = {_node_id(log_dir)}\npath = "{log_dir}"' for log_dir in log_dirs]
    config.write_text("\n".join(tables))
    command = [str(ROOT / "tiering"), "--config", str(config), "handover", topic, "--rehearse", *more]
    command += ["--kafka-home", str(jars(version)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_REHEARSAL_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return dict(json.loads(done.stdout))


def _node_id(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("node.id=")).removeprefix("node.id=")
