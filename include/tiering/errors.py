"""Every error of the library: one root, and each says whether trying again can help.

TieringError
|-- SettingError                     a setting or argument is wrong: exit code 2
|   `-- SegmentKeyError              the key pair of an encrypted segment is not at hand
|-- ConfigRefusedError               dynamic configs break a rule together
|-- ConfigNotTakenError              running workers have not taken a change  (retriable)
|-- FormatError                      bytes break a Kafka format (position, message; knows no path)
|   |-- OldMagicError                a record batch older than magic 2
|   `-- BatchTooLargeError           a batch is larger than is opened; no damage
|-- SourceError                      one file or replica of a log source (path, position)
|   |-- SourceUnreadableError        permission, I/O error, not a regular file
|   |-- SourceVanishedError          gone or renamed while we read           (retriable)
|   |-- SourceChangedError           not the file or partition it was        (retriable)
|   |-- CorruptFileError             a FormatError with its path
|   |-- CompactedSegmentError        offsets are gone by compaction; no damage
|   `-- HostileNameError             a name that no broker writes, or that leads outside
|-- ClusterMetadataError                cluster metadata is unknown or contradicts itself
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
|   |-- RemoteAccessDeniedError      the store has it and does not give it
|   |-- RemoteStoreMissingError      no such bucket
|   |-- RemoteStorageUnavailableError  time-out, 503, connection refused      (retriable)
|   |-- ObjectKeyError               a key that cannot be built or parsed
|   |-- StoredChunkError             a stored chunk, index or wrapped key that cannot be opened
|   |-- CustomMetadataTooLargeError  more than the brokers take
|   |-- StoreInDoubtError            more is missing from the store than is lost singly
|   `-- ForeignStoreError            the store's marker is not the one this database knows
|       `-- StorePlaceUnknownError   the database does not say where keys lie: `migrate` records it
|-- RemoteMetadataError
|   |-- IllegalTransitionError       not an edge of the segment state machine
|   |-- StateConflictError           the segment's state is not the expected one
|   |   `-- HistoryChangedError      the archive follows another history since    (retriable)
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
|-- LeaseAheadError                  a lease ends further ahead than it may last: it is none
|-- QuotaExceededError               a topic brings in more than its threshold  (retriable)
|-- ApprovalRequiredError            a plan that deletes is above a deletion limit and nobody approved it
|-- RunWithdrawnError                a run that deletes was withdrawn, and is never released again
|-- DatabaseSetBackError             an audit found that the database was set back: nothing expires
|-- AnswerRefusedError               a person's answer about a plan does not count
|-- LimitRefusedError                a limit of deletions is loosened by who may not approve deletions
|-- ClockDisagreesError              the database's clock is contradicted by another one, or by its own events
|   `-- ClockBehindError             it was set back a little, and catches up    (retriable)
|-- UnprovedReplacementError         a superseded segment stays until the copy in its place is proved
|-- HandoverForgottenError           a topic's retention is held back and nobody carries its handover on
|-- RehearsalError                   a handover cannot be rehearsed
|   |-- KafkaMissingError            no Java, or not all the jars of a broker
|   |-- RehearsalSpaceError           no room for what would be copied
|   `-- BrokerProcessError           a broker that was started here ended, or was not ready in time
|       `-- PortTakenError           somebody else listens on its port
|-- DataDocsError                    the pages about quality runs cannot be written
|-- RuleEvaluationError                       a quality rule could not be applied: no verdict is given
`-- SendingStoppedError              paused, or the parent process died       (retriable)
"""

from typing import ClassVar


class TieringError(Exception):
    """Root of all errors. The text names the thing and the number, never a secret or a payload."""

    retriable: ClassVar[bool] = False


def printable(name: str) -> str:
    """A name from disk or wire, safe for a terminal and a log line (control characters escaped)."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


class SettingError(TieringError):
    """A setting or argument is unusable; the text names it, its value and what is accepted."""


class ConfigRefusedError(TieringError):
    """A sound change of dynamic configs breaks a rule together with the others; the text has the numbers."""


class ConfigNotTakenError(TieringError):
    """A change of dynamic configs is stored and announced, but not all running workers have taken it in time."""

    retriable = True


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


class LeaseAheadError(TieringError):
    """What stands where a lease would ends further ahead than a lease may last: a clock was ahead. It holds nothing."""


class QuotaExceededError(TieringError):
    """A topic brings in more bytes a second than it may while its broker's total is exceeded: it has to wait."""

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
    """A plan that deletes may not be carried out: it is above a deletion limit, and nobody approved exactly it."""


class RunWithdrawnError(TieringError):
    """A run that deletes was withdrawn: nothing more of it is deleted, and it is never released again."""


class DatabaseSetBackError(TieringError):
    """An audit found that the database was set back, and none has cleared that since: nothing expires."""


class AnswerRefusedError(TieringError):
    """A person's answer does not count: not theirs, about another plan, or at an impossible time."""


class LimitRefusedError(TieringError):
    """A change loosens a limit of deletions, and who asked for it may not approve deletions. Nothing was changed."""


class ClockDisagreesError(TieringError):
    """The database's clock, by which retention is decided, is contradicted; the text names both times."""


class ClockBehindError(ClockDisagreesError):
    """The database's clock was set back a little: it lies before what it dated itself, and catches up."""

    retriable = True


class UnprovedReplacementError(TieringError):
    """A superseded segment is kept: the copy in its place is not proved to be there, whole and right."""


class DataDocsError(TieringError):
    """A page, or the results it is built from, cannot be written; the text names the directory and its setting."""


class RuleEvaluationError(TieringError):
    """A quality rule could not be applied to the measures: nothing passes and nothing fails by it."""


class SendingStoppedError(TieringError):
    """Sending was stopped from outside (pause, shutdown, parent process gone)."""

    retriable = True


class FormatError(TieringError):
    """Bytes that break a format at `position`, from the start of buffer or file; `message` is rule and number."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message} (at byte {position})")
        self.message = message
        self.position = position


class OldMagicError(FormatError):
    """A record batch of magic 0 or 1: sound perhaps, but without leader epoch, so it can never be tiered."""


class BatchTooLargeError(FormatError):
    """A batch is larger, or more would come out of it, than is opened. Nothing says that it is damaged."""


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


class CompactedSegmentError(SourceError):
    """Offsets of a segment are gone by compaction: the file is as its broker wants it, and cannot be copied."""


class HostileNameError(SourceError):
    """A file or directory name that no broker writes, or a link that leads outside."""


class ClusterMetadataError(TieringError):
    """The metadata of a topic is unknown or contradicts itself; nothing is decided from it."""


class BrokersError(ClusterMetadataError):
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
    """No answer of the brokers in time, or no leader. What was being sent may have arrived, or not."""

    retriable = True


class MetadataTopicRefusedError(MetadataTopicError):
    """The brokers answered, and refused: unknown topic or partition, no authorization, a wrong password."""


class MetadataTopicRangeError(MetadataTopicError):
    """Offsets that the partition does not hold (any more): retention removed them, or the topic is another one."""


class MetadataTopicReplacedError(MetadataTopicError):
    """The topic was created anew, or lost records that were not read yet: going on would be a silent loss."""


class PoisonRecordError(MetadataTopicError):
    """A record that Kafka's reader does not take: every broker that reads its partition stops there, always."""


class PublicationError(TieringError):
    """Remote log metadata of a partition cannot be published."""


class PublicationRefusedError(PublicationError):
    """A record would break a rule that brokers or consumers rely on; it was not sent."""


class ForeignRecordError(PublicationError):
    """Somebody else, a broker or a publisher, wrote about a partition that we publish: nothing more is sent."""


class HandoverForgottenError(TieringError):
    """A handover holds a topic's retention back, and nobody carries it on: a person has to resume or undo it."""


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


class RemoteAccessDeniedError(RemoteStorageError):
    """The store has it and does not give it: credentials, archive tier, file mode. No word about what is stored."""


class RemoteStorageUnavailableError(RemoteStorageError):
    """The store did not answer or asked to slow down."""

    retriable = True


class ObjectKeyError(RemoteStorageError):
    """A key that this layout would never write, or a name that would reach outside the prefix."""


class SegmentKeyError(SettingError):
    """A segment is encrypted for a key pair that is not at hand: this says nothing about what is stored."""


class StoredChunkError(RemoteStorageError):
    """A part of a segment is not what its manifest says: changed, cut, or sealed with another key."""


class CustomMetadataTooLargeError(RemoteStorageError):
    """Brokers would not take what they are to store of a segment, delete the copy and stop copying the partition."""


class StoreInDoubtError(RemoteStorageError):
    """More is missing than is lost singly: the store has our marker, and not what was stored there."""


class ForeignStoreError(RemoteStorageError):
    """The marker is not this database's, or keys lie elsewhere: nothing is written or deleted."""


class StorePlaceUnknownError(ForeignStoreError):
    """The database does not say where keys lie: until `./tiering migrate` records it, nothing is written."""


class RemoteMetadataError(TieringError):
    """The metadata store refused an operation."""


class IllegalTransitionError(RemoteMetadataError):
    """Not an edge of the segment state machine."""


class StateConflictError(RemoteMetadataError):
    """The segment is not in the state that the caller expected."""


class HistoryChangedError(StateConflictError):
    """A person decided to follow another history of the partition since the caller read what it works by."""

    retriable = True


class UnknownSegmentError(RemoteMetadataError):
    """No segment with this remote log segment id."""


class OffsetOutOfRangeError(RemoteMetadataError):
    """No served segment holds the offset under the leader epoch that was asked for."""


class MetadataUnavailableError(RemoteMetadataError):
    """The database is locked, unreachable, or its schema is not at the expected revision."""

    retriable = True


class RehearsalError(TieringError):
    """A handover cannot be rehearsed; nothing but the rehearsal's own directory was written."""


class KafkaMissingError(RehearsalError):
    """No Java, or not all the jars of a broker; the text says which, and where they can be had."""


class RehearsalSpaceError(RehearsalError):
    """The temporary directory has no room for what would be copied into it."""


class BrokerProcessError(RehearsalError):
    """A broker that was started here ended, or was not ready in time. With the end of its log."""


class PortTakenError(BrokerProcessError):
    """Somebody else listens on its port."""
