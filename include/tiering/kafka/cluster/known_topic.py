"""A topic as the brokers know it."""

from include.tiering.errors import UnknownTopicError
from include.tiering.kafka.cluster.brokers_contract import Brokers
from include.tiering.kafka.cluster.contract import TopicFacts


def known_topic(brokers: Brokers, topic: str) -> TopicFacts:
    """Raises UnknownTopicError, BrokersError."""
    found = brokers.topics([topic]).get(topic)
    if found is None:
        raise UnknownTopicError(f"the brokers know no topic {topic}")
    return found
