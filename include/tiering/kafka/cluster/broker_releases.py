"""Which Kafka a broker runs, as far as it tells: the minor release, from the greatest `metadata.version` it supports.

A broker names no version. Patch releases of one minor release support the same levels, so a fix that came with a patch
cannot be seen. Source: Kafka's MetadataVersion; levels of 3.9.2, 4.3.1 and 4.4.0 seen in brokers.
"""

from typing import Final

from include.tiering.kafka.cluster.brokers_contract import BrokerNode

METADATA_VERSION: Final = "metadata.version"
_FIRST_LEVELS: Final = (
    (11, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
    (31, "4.4"),
)
_LAST_KNOWN_LEVEL: Final = 33


def release_of(broker: BrokerNode) -> str:
    """In words: `Kafka 4.3`, `newer than Kafka 4.4`, `older than Kafka 3.5` or `unknown`."""
    level = broker.supported_features.get(METADATA_VERSION)
    if level is None:
        return "unknown"
    if level > _LAST_KNOWN_LEVEL:
        return f"newer than Kafka {_FIRST_LEVELS[-1][1]}"
    older = [release for first, release in _FIRST_LEVELS if level >= first]
    return f"Kafka {older[-1]}" if older else f"older than Kafka {_FIRST_LEVELS[0][1]}"
