"""Gauges of a broker that was started with JMX."""

import re

from tests.doubles.kafka_lab.broker import KafkaBroker
from tests.doubles.kafka_lab.java_programs import run_program

_BY_TOPIC = "kafka.server:type=BrokerTopicMetrics,name={name},topic=*"


def gauge_by_topic(broker: KafkaBroker, name: str) -> dict[str, int]:
    """Of `BrokerTopicMetrics`, such as RemoteLogSizeBytes: what the broker says of the partitions that it leads."""
    assert broker.jmx_port, "the broker was started without JMX"
    said = run_program("Gauges", str(broker.jmx_port), _BY_TOPIC.format(name=name), version=broker.version).decode()
    found = re.findall(r"topic=([^,\s]+)\S* (-?\d+)$", said, re.MULTILINE)
    return {topic: int(value) for topic, value in found}
