"""All errors of the library, below a common root; `retriable` says whether a retry can help.

TieringError
|-- SettingError                     a setting or argument is wrong: exit code 2
|   `-- SegmentKeyError              the key pair of an encrypted segment is missing
|-- ConfigRefusedError               dynamic configs together break a rule
|-- ConfigNotTakenError              running workers do not use a change yet  (retriable)
|-- FormatError                      bytes break a Kafka format (position, message; no path)
|   |-- OldMagicError                a record batch older than magic 2
|   `-- BatchTooLargeError           a batch is larger than the limit; no damage
|-- SourceError                      a file or replica of a log source (path, position)
|   |-- SourceUnreadableError        permission, I/O error, not a regular file
|   |-- SourceVanishedError          gone or renamed during a read           (retriable)
|   |-- SourceChangedError           changed since the copy began            (retriable)
|   |-- CorruptFileError             a FormatError with its path
|   |-- CompactedSegmentError        offsets are gone by compaction; no damage
|   `-- HostileNameError             a name that no broker writes, or a link out of the directory
|-- ClusterMetadataError             cluster metadata is unknown or contradicts itself
|   `-- BrokersError                 a request to the brokers failed
|       |-- BrokersUnavailableError  no answer in time, or a leader is changing (retriable)
|       |-- BrokersLoginError        TLS or SASL failed
|       |-- BrokersForbiddenError    logged in, but not authorised for this
|       |-- BrokersRefusedError      an invalid request, name or value, with the broker's message
|       |-- UnknownTopicError        no such topic or partition, or its name belongs to another topic id
|       `-- ForeignClusterError      the brokers are of another cluster than the database or the log dirs
|-- RemoteStorageError               a remote object or the store
|   |-- RemoteResourceNotFoundError
|   |-- RemoteObjectExistsError      If-None-Match: another writer has written this key
|   |-- RemoteChecksumError          the bytes stored or sent differ from the source
|   |-- RemoteStorageFullError
|   |-- RemoteAccessDeniedError      the object exists, access to it is denied
|   |-- RemoteStoreMissingError      no such bucket
|   |-- RemoteStorageUnavailableError  time-out, 503, connection refused      (retriable)
|   |-- ObjectKeyError               a key that cannot be built or parsed
|   |-- StoredChunkError             a stored chunk, index or wrapped key that cannot be opened
|   |-- CustomMetadataTooLargeError  more than the brokers accept
|   |-- StoreInDoubtError            too many objects are missing from the store
|   `-- ForeignStoreError            the store's marker differs from the database's
|       `-- StorePlaceUnknownError   the database has no place of the keys: `migrate` records it
|-- RemoteMetadataError
|   |-- IllegalTransitionError       not an edge of the segment state machine
|   |-- StateConflictError           the segment's state is not the expected one
|   |   `-- HistoryChangedError      the archive follows another leader epoch history (retriable)
|   |-- UnknownSegmentError          no such remote log segment id
|   |-- OffsetOutOfRangeError        no served segment holds this offset
|   `-- MetadataUnavailableError     database locked, unreachable or not migrated (retriable)
|-- MetadataTopicError               the topic __remote_log_metadata of a cluster
|   |-- MetadataTopicUnavailableError  no answer in time, or no leader        (retriable)
|   |-- MetadataTopicRefusedError    no such topic or partition, or not for this principal
|   |-- MetadataTopicRangeError      records that should exist are missing
|   |-- MetadataTopicReplacedError   another topic, or other records, than those read so far
|   `-- PoisonRecordError            a record at which every broker that reads it stops
|-- PublicationError                 remote log metadata that cannot be published
|   |-- PublicationRefusedError      a rule forbids it: no record was sent
|   `-- ForeignRecordError           another writer wrote about a partition that we publish
|-- QueueFullError                   no space in a bounded queue in time      (retriable)
|-- QueueEmptyError                  no item came to a queue in time          (retriable)
|-- QueueClosedError                 a queue was closed, or is closed and empty
|-- AirflowApiError                  Airflow's REST API refused a request
|   `-- AirflowApiUnavailableError   no answer                              (retriable)
|-- LeaseLostError                   the fencing token is no longer the newest (retriable)
|-- LeaseAheadError                  a lease ends further ahead than it may last and is ignored
|-- QuotaExceededError               a topic brings in more than its threshold  (retriable)
|-- ApprovalRequiredError            a plan is above a deletion limit and not approved
|-- RunWithdrawnError                a run that deletes was withdrawn, and is never released again
|-- DatabaseSetBackError             an audit found that the database was set back: no segment expires
|-- AnswerRefusedError               a person's answer about a plan does not count
|-- LimitRefusedError                a deletion limit is loosened by a user who may not approve deletions
|-- ClockDisagreesError              another clock, or an event, contradicts the database's clock
|   `-- ClockBehindError             it was set back a little, and will catch up  (retriable)
|-- UnprovedReplacementError         a superseded segment stays until its new copy is verified
|-- HandoverForgottenError           a handover overrides a topic's retention and no run continues it
|-- RehearsalError                   a handover cannot be rehearsed
|   |-- KafkaMissingError            no Java, or not all the jars of a broker
|   |-- RehearsalSpaceError          no space for what would be copied
|   `-- BrokerProcessError           a broker that was started here ended, or was not ready in time
|       `-- PortTakenError           another process listens on its port
|-- DataDocsError                    the pages about quality runs cannot be written
|-- RuleEvaluationError              a quality rule could not be applied: no verdict is given
`-- SendingStoppedError              paused, or the parent process died       (retriable)
"""

from typing import ClassVar


class TieringError(Exception):
    """Root of all errors. The message names the thing and the number, never a secret or a payload."""

    retriable: ClassVar[bool] = False


def printable(name: str) -> str:
    """A name from disk or wire, safe for a terminal and a log line (control characters escaped)."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


class SettingError(TieringError):
    """A setting or argument is invalid; the message names it, its value and what is accepted."""


class ConfigRefusedError(TieringError):
    """A valid change of dynamic configs breaks a rule together with the other values; the message has the numbers."""


class ConfigNotTakenError(TieringError):
    """A change of dynamic configs is stored and announced, but not all running workers used it in time."""

    retriable = True


class QueueFullError(TieringError):
    """A bounded queue had no space within the given time."""

    retriable = True


class QueueEmptyError(TieringError):
    """No item came to a queue within the given time."""

    retriable = True


class QueueClosedError(TieringError):
    """A queue was closed: it accepts no items, or is also empty."""


class AirflowApiError(TieringError):
    """Airflow's REST API refused a request, or the answer was not from Airflow."""


class AirflowApiUnavailableError(AirflowApiError):
    """No answer: the API server is starting, stopping or unreachable."""

    retriable = True


class LeaseLostError(TieringError):
    """Another worker has a newer fencing token for this partition: stop at once, change nothing."""

    retriable = True


class LeaseAheadError(TieringError):
    """A lease row ends too far in the future for its length, because a clock was ahead. It blocks no claim."""


class QuotaExceededError(TieringError):
    """A topic exceeds its threshold of bytes a second while its broker's total is exceeded: it has to wait."""

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
    """A plan that deletes is above a deletion limit and not approved: it must not be carried out."""


class RunWithdrawnError(TieringError):
    """A run that deletes was withdrawn: nothing more of it is deleted, and it is never released again."""


class DatabaseSetBackError(TieringError):
    """An audit found that the database was set back, and no later audit cleared that: no segment expires."""


class AnswerRefusedError(TieringError):
    """An answer does not count: the user may not give it, it is about another plan, or its time is impossible."""


class LimitRefusedError(TieringError):
    """A change loosens a deletion limit, and its author may not approve deletions. No value was changed."""


class ClockDisagreesError(TieringError):
    """The database's clock, by which retention is decided, contradicts another clock; the message names both times."""


class ClockBehindError(ClockDisagreesError):
    """The database's clock was set back a little: it lies before an event that it dated, and will catch up."""

    retriable = True


class UnprovedReplacementError(TieringError):
    """A superseded segment is kept: the copy that replaced it is not verified to be complete and correct."""


class DataDocsError(TieringError):
    """A page, or the results it is built from, cannot be written; the message names the directory and its setting."""


class RuleEvaluationError(TieringError):
    """A quality rule could not be applied to the measurements: it neither passes nor fails a segment."""


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
    """A record batch of magic 0 or 1: perhaps valid, but without leader epoch, so it can never be tiered."""


class BatchTooLargeError(FormatError):
    """A batch is larger, or would decompress to more, than the limit. It need not be damaged."""


class SourceError(TieringError):
    """A file or replica of a log source could not be used.

    Attributes:
        path: the file or directory for the message; do not open it again.
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
    """The file or directory was removed or renamed during a read."""

    retriable = True


class SourceChangedError(SourceError):
    """The replica has changed since the copy began: plan it again."""

    retriable = True


class CorruptFileError(SourceError):
    """A file of the source breaks its format at `position`."""


class CompactedSegmentError(SourceError):
    """Compaction removed offsets of a segment: the file is valid, and cannot be copied."""


class HostileNameError(SourceError):
    """A file or directory name that no broker writes, or a link that leads out of the directory."""


class ClusterMetadataError(TieringError):
    """The metadata of a topic is unknown or contradicts itself; no decision is based on it."""


class BrokersError(ClusterMetadataError):
    """A request to the brokers failed; the message names them and the request."""


class BrokersUnavailableError(BrokersError):
    """No broker answered in time, or the broker that must answer is changing."""

    retriable = True


class BrokersLoginError(BrokersError):
    """TLS or SASL failed: a certificate, a user or password, or a protocol that the listener does not use."""


class BrokersForbiddenError(BrokersError):
    """The user is not authorised for the request."""


class BrokersRefusedError(BrokersError):
    """The brokers refused a request, name or value; it changed nothing."""


class UnknownTopicError(BrokersError):
    """No such topic or partition, or its name belongs to another topic id."""


class ForeignClusterError(BrokersError):
    """The brokers belong to another cluster than the database or the log directories; no decision is based on both."""


class MetadataTopicError(TieringError):
    """The topic with the brokers' remote log metadata; the message names topic, partition and the broker's reason."""


class MetadataTopicUnavailableError(MetadataTopicError):
    """No answer of the brokers in time, or no leader. A record being sent may have arrived or not."""

    retriable = True


class MetadataTopicRefusedError(MetadataTopicError):
    """The brokers answered, and refused: unknown topic or partition, no authorization, a wrong password."""


class MetadataTopicRangeError(MetadataTopicError):
    """The partition does not have these offsets (any more): retention removed them, or it is another topic."""


class MetadataTopicReplacedError(MetadataTopicError):
    """The topic was created again, or lost records that were not read yet: continuing would skip them silently."""


class PoisonRecordError(MetadataTopicError):
    """Kafka's reader does not accept the record: every broker that reads its partition always stops there."""


class PublicationError(TieringError):
    """Remote log metadata of a partition cannot be published."""


class PublicationRefusedError(PublicationError):
    """A record would break a rule that brokers or consumers rely on; it was not sent."""


class ForeignRecordError(PublicationError):
    """A broker or another publisher wrote about a partition that we publish: no further record is sent."""


class HandoverForgottenError(TieringError):
    """A handover overrides a topic's retention, and no run continues it: a person has to resume or undo it."""


class RemoteStorageError(TieringError):
    """The remote store refused or failed an operation on an object."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """No object under this key, or the object lacks the requested part."""


class RemoteObjectExistsError(RemoteStorageError):
    """A conditional write found an existing object."""


class RemoteChecksumError(RemoteStorageError):
    """Length or CRC-32C of an object differs from the source's."""


class RemoteStorageFullError(RemoteStorageError):
    """No space left, or a storage quota is exhausted."""


class RemoteStoreMissingError(RemoteStorageError):
    """There is no such bucket. A bucket created now would be empty, without our marker and without copied segments."""


class RemoteAccessDeniedError(RemoteStorageError):
    """The store denied access: credentials, archive tier, file mode. That says nothing about the stored bytes."""


class RemoteStorageUnavailableError(RemoteStorageError):
    """The store did not answer or asked to slow down."""

    retriable = True


class ObjectKeyError(RemoteStorageError):
    """A key that this layout would never write, or a name that would lead out of the prefix."""


class SegmentKeyError(SettingError):
    """A segment is encrypted for a key pair that is missing here. That says nothing about the stored bytes."""


class StoredChunkError(RemoteStorageError):
    """A part of a segment differs from its manifest: changed, truncated, or encrypted with another key."""


class CustomMetadataTooLargeError(RemoteStorageError):
    """The custom metadata exceeds the brokers' limit: they would delete the copy and stop copying the partition."""


class StoreInDoubtError(RemoteStorageError):
    """Too many objects are missing for single losses: the store has our marker, but not what was stored there."""


class ForeignStoreError(RemoteStorageError):
    """The marker is not this database's, or keys are in another place: no object is written or deleted."""


class StorePlaceUnknownError(ForeignStoreError):
    """The database has no place of the keys: until `./tiering migrate` records it, no object is written."""


class RemoteMetadataError(TieringError):
    """The metadata store refused an operation."""


class IllegalTransitionError(RemoteMetadataError):
    """Not an edge of the segment state machine."""


class StateConflictError(RemoteMetadataError):
    """The segment is not in the state that the caller expected."""


class HistoryChangedError(StateConflictError):
    """A person decided to follow another history of the partition after the caller read its state."""

    retriable = True


class UnknownSegmentError(RemoteMetadataError):
    """No segment with this remote log segment id."""


class OffsetOutOfRangeError(RemoteMetadataError):
    """No served segment holds the offset under the leader epoch that was asked for."""


class MetadataUnavailableError(RemoteMetadataError):
    """The database is locked, unreachable, or its schema is not at the expected revision."""

    retriable = True


class RehearsalError(TieringError):
    """A handover cannot be rehearsed; only the rehearsal's own directory was written."""


class KafkaMissingError(RehearsalError):
    """No Java, or not all the jars of a broker; the message says which, and how to get them."""


class RehearsalSpaceError(RehearsalError):
    """The temporary directory has no space for what would be copied into it."""


class BrokerProcessError(RehearsalError):
    """A broker that was started here ended, or was not ready in time; the message has the end of its log."""


class PortTakenError(BrokerProcessError):
    """Another process listens on its port."""
