"""What brokers do not say or do, and what is found in, or cannot be written to, their metadata topic."""

from include.tiering.errors.root import TieringError


class ClusterFactsError(TieringError):
    """A topic's facts are unknown or contradict each other; nothing is decided from them."""


class BrokersError(ClusterFactsError):
    """The brokers did not say or do what they were asked; the text names them and the request."""


class BrokersUnavailableError(BrokersError):
    """No broker answered in time, or the one that must answer is just changing."""

    retriable = True


class BrokersLoginError(BrokersError):
    """TLS or SASL failed: a certificate, a user or password, or a protocol that the listener does not speak."""


class BrokersForbiddenError(BrokersError):
    """This user may not do or see that."""


class BrokersRefusedError(BrokersError):
    """A request, name or value that the brokers do not take; nothing was changed by it."""


class UnknownTopicError(BrokersError):
    """No such topic or partition, or its name belongs to another topic id."""


class ForeignClusterError(BrokersError):
    """The brokers belong to another cluster than the database or the log directories: nothing is decided from both."""


class MetadataTopicError(TieringError):
    """The topic with the brokers' remote log metadata; the text names topic, partition and broker's reason."""


class MetadataTopicUnavailableError(MetadataTopicError):
    """The brokers did not answer in time, or the partition has no leader. A record that was being sent may have
    arrived, or not."""

    retriable = True


class MetadataTopicRefusedError(MetadataTopicError):
    """The brokers answered, and refused: unknown topic or partition, no authorization, a wrong password."""


class MetadataTopicRangeError(MetadataTopicError):
    """Offsets that the partition does not hold (any more): retention removed them, or the topic is another one."""


class MetadataTopicReplacedError(MetadataTopicError):
    """The topic was created anew, has other partitions, or lost records that were not read yet: going on would be a
    silent loss."""


class PoisonRecordError(MetadataTopicError):
    """A record that Kafka's own reader does not take: every broker that reads its partition stops there, and stops
    again after a restart."""


class PublicationError(TieringError):
    """Remote log metadata of a partition cannot be published."""


class PublicationRefusedError(PublicationError):
    """A record would break a rule that brokers or consumers rely on; it was not sent."""


class ForeignRecordError(PublicationError):
    """The metadata topic has records about a partition that we publish, and that we did not write: a broker tiers it
    already, or another publisher is at work. Nothing more is sent."""


class HandoverForgottenError(TieringError):
    """A hand-over holds a topic's retention back, and nobody carries it on: a person has to resume or undo it."""
