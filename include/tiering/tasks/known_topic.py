"""A topic as the brokers know it."""

from include.tiering.cluster.brokers_contract import Brokers
from include.tiering.cluster.contract import TopicFacts
from include.tiering.errors import UnknownTopicError


def known_topic(brokers: Brokers, topic: str) -> TopicFacts:
    """Raises UnknownTopicError, BrokersError."""
    found = brokers.topics([topic]).get(topic)
    if found is None:
        raise UnknownTopicError(f"the brokers know no topic {topic}")
    return found
