"""librdkafka's own mock of a cluster: a broker on loopback, in this process, which real clients of librdkafka talk to.

It answers requests for metadata, offsets and records, and takes records. It has no controller: nothing that an
administrator asks for.
"""

from typing import Final

from confluent_kafka import Producer

PARTITIONS: Final = 4
"""Of each topic."""
ClientConfig = dict[str, str | int]
_QUIET: Final[ClientConfig] = {"log_level": 0}
_TIMEOUT_SECONDS: Final = 30.0


class MockCluster:
    """It ends with its last reference."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored:1", **_QUIET})

    @property
    def config(self) -> ClientConfig:
        """Of a client."""
        (broker,) = self._owner.list_topics(timeout=_TIMEOUT_SECONDS).brokers.values()
        return {"bootstrap.servers": f"{broker.host}:{broker.port}", **_QUIET}

    def create_topic(self, name: str) -> None:
        """A topic appears when a client asks for it that may create some."""
        found = self._owner.list_topics(name, timeout=_TIMEOUT_SECONDS).topics[name]
        assert len(found.partitions) == PARTITIONS

    def append(self, topic: str, partition: int, *values: bytes | None, key: bytes | None = None) -> None:
        """Records with a header each; their timestamps are 1,000, 2,000, ..."""
        for number, value in enumerate(values, start=1):
            headers: list[tuple[str, str | bytes | None]] = [("number", b"%d" % number), ("nothing", None)]
            self._owner.produce(topic, value, key, partition, timestamp=1_000 * number, headers=headers)
        assert self._owner.flush(_TIMEOUT_SECONDS) == 0
