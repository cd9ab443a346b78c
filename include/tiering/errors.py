"""Every error of the library: one root, and each says whether trying again can help.

TieringError
|-- SettingError                     a setting or argument is wrong: exit code 2
|-- ConfigRefusedError               dynamic configs break a rule together
|-- ConfigNotTakenError              running workers have not taken a change  (retriable)
|-- FormatError                      bytes break a Kafka format (position, message; knows no path)
|   `-- OldMagicError                a record batch older than magic 2
|-- SourceError                      one file or replica of a log source (path, position)
|   |-- SourceUnreadableError        permission, I/O error, not a regular file
|   |-- SourceVanishedError          gone or renamed while we read           (retriable)
|   |-- SourceChangedError           not the file or partition it was        (retriable)
|   |-- CorruptFileError             a FormatError with its path
|   `-- HostileNameError             a name that no broker writes, or that leads outside
|-- ClusterFactsError                topic facts are unknown or contradict each other
|   `-- BrokersError                 the brokers did not say or do what they were asked
|       |-- BrokersUnavailableError  no answer in time, or a leader is changing (retriable)
|       |-- BrokersLoginError        TLS or SASL failed
|       |-- BrokersForbiddenError    logged in, but not authorised for this
|       |-- BrokersRefusedError      an invalid request, name or value, in the broker's words
|       |-- UnknownTopicError        no such topic or partition, or its name belongs to another topic id
|       `-- ForeignClusterError      the brokers are of another cluster than the database or the log dirs
|-- RemoteStorageError               one remote object or the store
|   |-- RemoteResourceNotFoundError
|   |-- RemoteObjectExistsError      If-None-Match: somebody else wrote this key
|   |-- RemoteChecksumError          the store has, or was sent, other bytes than the source
|   |-- RemoteStorageFullError
|   |-- RemoteStoreMissingError      no such bucket
|   |-- RemoteStorageUnavailableError  time-out, 503, connection refused      (retriable)
|   |-- ObjectKeyError               a key that cannot be built or parsed
|   `-- ForeignStoreError            the store's marker is not the one this database knows
|-- RemoteMetadataError
|   |-- IllegalTransitionError       not an edge of the segment state machine
|   |-- StateConflictError           the segment's state is not the expected one
|   |-- UnknownSegmentError          no such remote log segment id
|   |-- OffsetOutOfRangeError        no served segment holds this offset
|   `-- MetadataUnavailableError     database locked, away or not migrated    (retriable)
|-- MetadataTopicError               the topic __remote_log_metadata of a cluster
|   |-- MetadataTopicUnavailableError  no answer in time, or no leader        (retriable)
|   |-- MetadataTopicRefusedError    no such topic or partition, or not for this principal
|   |-- MetadataTopicRangeError      records that should be there are not
|   |-- MetadataTopicReplacedError   not the topic, or not the records, that were read so far
|   `-- PoisonRecordError            a record over which every broker that reads it stops
|-- PublicationError                 remote log metadata that cannot be published
|   |-- PublicationRefusedError      a rule forbids it: nothing was sent
|   `-- ForeignRecordError           somebody else wrote about a partition that we publish
|-- QueueFullError                   no room in a bounded queue in time       (retriable)
|-- QueueEmptyError                  nothing came to a queue in time          (retriable)
|-- QueueClosedError                 a queue takes, or has, nothing more
|-- AirflowApiError                  Airflow's REST API refused a request
|   `-- AirflowApiUnavailableError   no answer                              (retriable)
|-- LeaseLostError                   the fencing token is no longer the newest (retriable)
|-- QuotaExceededError               a topic brings in more than its threshold  (retriable)
|-- ApprovalRequiredError            a plan that deletes was stopped by the brake and nobody approved it
|-- HandoverForgottenError           a topic's retention is held back and nobody carries its hand-over on
|-- DataDocsError                    the pages about quality runs cannot be written
|-- JudgeError                       a quality rule could not be applied: no verdict is given
`-- SendingStoppedError              paused, or the parent process died       (retriable)
"""

from typing import ClassVar


class TieringError(Exception):
    """Root of all errors. The text names the thing and the number, never a secret or a payload."""

    retriable: ClassVar[bool] = False


class SettingError(TieringError):
    """A setting or argument is unusable; the text names it, its value and what is accepted."""


class ConfigRefusedError(TieringError):
    """A change of dynamic configs is sound by itself but breaks a rule together with the others; the text has the
    numbers. Nothing was changed."""


class ConfigNotTakenError(TieringError):
    """A change of dynamic configs is stored and announced, but not all running workers have taken it in time."""

    retriable = True


class FormatError(TieringError):
    """Bytes that break a format.

    Attributes:
        position: offset in bytes from the start of the buffer or file at which the rule broke.
        message: the rule and the number that broke it.
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message} (at byte {position})")
        self.message = message
        self.position = position


class OldMagicError(FormatError):
    """A record batch of magic 0 or 1: sound perhaps, but without leader epoch, so it can never be tiered."""


class SourceError(TieringError):
    """One file or replica of a log source could not be used.

    Attributes:
        path: the file or directory, for a person; not to be opened again.
        position: byte in that file, or None if the whole of it is meant.
        message: what was expected and what was found.
    """

    def __init__(self, path: str, message: str, position: int | None = None) -> None:
        where = printable(path) if position is None else f"{printable(path)} at byte {position}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.position = position
        self.message = message


class SourceUnreadableError(SourceError):
    """Permission denied, an I/O error, or not a regular file."""


class SourceVanishedError(SourceError):
    """The file or directory went away, or was renamed, while we read."""

    retriable = True


class SourceChangedError(SourceError):
    """The replica is not what it was when the copy began: plan it anew."""

    retriable = True


class CorruptFileError(SourceError):
    """A file of the source breaks its format at `position`."""


class HostileNameError(SourceError):
    """A file or directory name that no broker writes, or a link that leads outside."""


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


class RemoteStorageError(TieringError):
    """The remote store refused or failed an operation on one object."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """No object under this key, or the object lacks the asked part."""


class RemoteObjectExistsError(RemoteStorageError):
    """A conditional write met an object that is already there."""


class RemoteChecksumError(RemoteStorageError):
    """Length or CRC-32C of an object differs from the source's."""


class RemoteStorageFullError(RemoteStorageError):
    """No space left, or a storage quota is exhausted."""


class RemoteStoreMissingError(RemoteStorageError):
    """There is no such bucket. One that is made now is empty: without our marker, without anything that was copied."""


class RemoteStorageUnavailableError(RemoteStorageError):
    """The store did not answer or asked to slow down."""

    retriable = True


class ObjectKeyError(RemoteStorageError):
    """A key that this layout would never write, or a name that would reach outside the prefix."""


class SegmentKeyError(RemoteStorageError):
    """A segment is encrypted for a key pair that is not at hand, or not the one it says."""


class StoredChunkError(RemoteStorageError):
    """A part of a compressed or encrypted segment is not what its manifest says: changed, cut, or sealed otherwise."""


class CustomMetadataTooLargeError(RemoteStorageError):
    """Brokers would not take what they have to remember of a segment, delete the copy and stop copying the partition."""


class ForeignStoreError(RemoteStorageError):
    """The store's marker names another cluster, store or generation: nothing is written or deleted."""


class RemoteMetadataError(TieringError):
    """The metadata store refused an operation."""


class IllegalTransitionError(RemoteMetadataError):
    """Not an edge of the segment state machine."""


class StateConflictError(RemoteMetadataError):
    """The segment is not in the state that the caller expected."""


class UnknownSegmentError(RemoteMetadataError):
    """No segment with this remote log segment id."""


class OffsetOutOfRangeError(RemoteMetadataError):
    """No served segment holds the offset under the leader epoch that was asked for."""


class MetadataUnavailableError(RemoteMetadataError):
    """The database is locked, unreachable, or its schema is not at the expected revision."""

    retriable = True


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


class QueueFullError(TieringError):
    """A bounded queue had no room within the time that was given."""

    retriable = True


class QueueEmptyError(TieringError):
    """Nothing came to a queue within the time that was given."""

    retriable = True


class QueueClosedError(TieringError):
    """A queue was closed: it takes nothing more, or has nothing more to give."""


class AirflowApiError(TieringError):
    """Airflow's REST API refused a request, or gave no answer of its own."""


class AirflowApiUnavailableError(AirflowApiError):
    """No answer: the API server is starting, stopping or away."""

    retriable = True


class LeaseLostError(TieringError):
    """Somebody else holds a newer fencing token for this partition: stop at once, change nothing."""

    retriable = True


class QuotaExceededError(TieringError):
    """A topic brings in more bytes than it may while its broker's total is exceeded: it has to wait.

    Attributes:
        broker_id, topic: whose log dir was read, for which topic.
        topic_rate, topic_threshold, total_rate, total_threshold: bytes a second.
    """

    retriable = True

    def __init__(
        self,
        broker_id: int,
        topic: str,
        *,
        topic_rate: float,
        topic_threshold: float,
        total_rate: float,
        total_threshold: float,
    ) -> None:
        super().__init__(
            f"topic {printable(topic)} on broker {broker_id} brings in {topic_rate:.0f} bytes a second (threshold"
            f" {topic_threshold:.0f}) while all topics bring in {total_rate:.0f} (threshold {total_threshold:.0f})"
        )
        self.broker_id = broker_id
        self.topic = topic
        self.topic_rate = topic_rate
        self.topic_threshold = topic_threshold
        self.total_rate = total_rate
        self.total_threshold = total_threshold


class ApprovalRequiredError(TieringError):
    """A plan that deletes may not be carried out: the brake stopped it, or has not looked at it, and nobody approved
    exactly this plan."""


class HandoverForgottenError(TieringError):
    """A hand-over holds a topic's retention back, and nobody carries it on: a person has to resume or undo it."""


class DataDocsError(TieringError):
    """A page, or the results it is built from, cannot be written; the text names the directory and its setting."""


class JudgeError(TieringError):
    """A quality rule could not be applied to the measures: nothing passes and nothing fails by it."""


class SendingStoppedError(TieringError):
    """Sending was stopped from outside (pause, shutdown, parent process gone)."""

    retriable = True


def printable(name: str) -> str:
    """A name from disk or wire, safe for a terminal and a log line (control characters escaped)."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
