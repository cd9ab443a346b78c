"""Samples of partitions in the log directory of one real broker."""

from pathlib import Path

from include.tiering.broker_process.sample import PartitionSample, sample_of
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.units import MIB

BROKER = "running/broker-1"
"""Of the data set `public`."""


def scanned(log_dir: Path, topic: str) -> list[Replica]:
    source = LogDirSource([LogDirLocation(None, log_dir)], MetadataLog([log_dir]), named_topics=[topic])
    return [one for one in source.scan(topics=[topic]).replicas if one.chosen]


def sampled(log_dir: Path, topic: str, max_bytes: int = MIB) -> PartitionSample:
    return sample_of(scanned(log_dir, topic)[0], max_bytes)
