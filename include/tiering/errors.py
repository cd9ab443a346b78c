"""The errors of the library, below a common root; `retriable` says whether a retry alone can help.

TieringError
|-- SettingError                     a setting or argument is wrong: exit code 2
|   `-- SegmentKeyError              the private key of an encrypted segment is missing
|-- ConfigRefusedError               configs break a rule together, or the brokers cannot take one
|-- ConfigNotTakenError              running workers do not use a change yet  (retriable)
|-- FormatError                      bytes break a format (position, message; no path)
|   |-- OldMagicError                a record batch older than magic 2
|   |-- UnknownVersionError          of another release, perhaps valid
|   `-- BatchTooLargeError           a batch is larger than the limit; perhaps no damage
|-- SourceError                      a file or replica of a log source (path, position)
|   |-- SourceUnreadableError        permission, I/O error, not a regular file or not a directory
|   |-- SourceVanishedError          not found, or of another topic id        (retriable)
|   |-- SourceChangedError           changed since it was listed, planned or checked  (retriable)
|   |-- CorruptFileError             a file breaks its format, or a file or offsets are missing
|   |   `-- UnusableBatchesError     a leader's answer does not continue its log
|   |-- CompactedSegmentError        compaction removed offsets; no damage
|   `-- HostileNameError             a name that no broker writes, or a symbolic link
|-- ClusterMetadataError             cluster metadata is unknown, or sources contradict each other
|   `-- BrokersError                 a request to the brokers failed
|       |-- BrokersUnavailableError  no answer in time, or a state that passes  (retriable)
|       |-- BrokersLoginError        TLS or SASL failed
|       |-- BrokersForbiddenError    logged in, but not authorised for this
|       |-- BrokersRefusedError      a request that is invalid or not supported, or an unusable response
|       |-- UnknownTopicError        topic or partition not found, or its name belongs to another topic id
|       `-- ForeignClusterError      the brokers are of another cluster than the database
|-- RemoteStorageError               a remote object or the store
|   |-- RemoteResourceNotFoundError
|   |   `-- NoSuchIndexError         the segment has no index of this type, and needs none
|   |-- RemoteObjectExistsError      If-None-Match: the key exists already
|   |-- RemoteChecksumError          bytes that were sent, stored or fetched are not those expected
|   |-- RemoteStorageFullError
|   |-- RemoteAccessDeniedError      access is denied, perhaps to an object that exists
|   |-- RemoteStoreMissingError      no such bucket
|   |-- RemoteStorageUnavailableError  time-out, 503, connection refused      (retriable)
|   |-- ObjectKeyError               a key that cannot be built or parsed
|   |-- StoredChunkError             a stored chunk, index or wrapped key that cannot be opened, or is too large
|   |-- CustomMetadataTooLargeError  more than the brokers accept
|   |-- StoreInDoubtError            objects are missing, and the store is probably the wrong one or incomplete
|   `-- ForeignStoreError            the store is not the one of the database
|       `-- StorePlaceUnknownError   the database lacks the store's URL, layout and key prefix: run `migrate`
|-- RemoteMetadataError
|   |-- IllegalTransitionError       not an edge of the segment state machine, or the new segment's id is in use
|   |-- StateConflictError           the database has another state than the caller expected
|   |   `-- HistoryChangedError      another history is followed than the caller read (retriable)
|   |-- UnknownSegmentError          no such segment, or nothing to adopt
|   |-- OffsetOutOfRangeError        below the log start, or no served segment holds this offset
|   `-- MetadataUnavailableError     database locked, unreachable, not migrated or being rebuilt (retriable)
|-- MetadataTopicError               the topic __remote_log_metadata of a cluster
|   |-- MetadataTopicUnavailableError  no answer in time, or no leader        (retriable)
|   |-- MetadataTopicRefusedError    no such topic or partition, not for this principal, or an invalid record
|   |-- MetadataTopicRangeError      records that should exist are missing
|   |-- MetadataTopicReplacedError   another topic id or partition count than when it was first read
|   `-- PoisonRecordError            every broker that reads this record stops there
|-- PublicationError                 remote log metadata that cannot be published
|   |-- PublicationRefusedError      a rule forbids the next record: it was not sent
|   `-- ForeignRecordError           another writer wrote about a published partition, or records are missing
|-- QueueFullError                   no space in a bounded queue in time      (retriable)
|-- QueueEmptyError                  no item came to a queue in time          (retriable)
|-- QueueClosedError                 `put` to a closed queue, or `get` from a closed and empty one
|-- AirflowApiError                  no login for Airflow's REST API, or it refused a request
|   `-- AirflowApiUnavailableError   no answer, or Airflow says unavailable (retriable)
|-- LeaseLostError                   a lease has ended or is another's           (retriable)
|-- LeaseAheadError                  a lease ends further ahead than it may last and is ignored
|-- QuotaExceededError               a topic and all topics together exceed their thresholds  (retriable)
|-- ApprovalRequiredError            a plan that deletes, or that of a handover, was not released
|-- RunWithdrawnError                a run that deletes was withdrawn, and is never released again
|-- DatabaseSetBackError             the database was set back: no segment expires, no orphan object is removed
|-- AnswerRefusedError               a person's approval of a plan does not count
|-- LimitRefusedError                a deletion limit may not be loosened by this run or its user
|-- ClockDisagreesError              another clock, or an event, contradicts the database's clock
|   `-- ClockBehindError             the database's clock is a little before an event (retriable)
|-- UnprovedReplacementError         a superseded or abandoned copy stays until what replaces it is verified
|-- HandoverForgottenError           a handover suspends a topic's retention or copies, without progress
|-- RehearsalError                   a handover cannot be rehearsed
|   |-- KafkaMissingError            no Java, no Maven, or not all the jars of a broker
|   |-- RehearsalSpaceError          no space for what would be copied
|   `-- BrokerProcessError           a broker on this host was not formatted or started, or does not run
|       `-- PortTakenError           another process listens on the broker's port
|-- DataDocsError                    the directory of the pages about quality runs cannot be written
|-- RuleEvaluationError              a quality rule could not be applied, so it gives no verdict
`-- SendingStoppedError              paused, or the parent process died       (retriable)
"""

from typing import ClassVar


class TieringError(Exception):
    """Root of all errors. The message names the affected thing and the numbers, never a secret or a payload."""

    retriable: ClassVar[bool] = False


def printable(name: str) -> str:
    """Return a name from disk or wire with unprintable characters escaped: safe for a terminal and a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


class SettingError(TieringError):
    """A setting or argument is invalid; the message names it, its value and what is accepted."""


class ConfigRefusedError(TieringError):
    """Configs whose values are valid one by one break a rule together, or brokers lack a config or cannot change it."""


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
    """The queue was closed: `put` is refused, and so is `get` once the queue is empty."""


class AirflowApiError(TieringError):
    """There is no usable login for Airflow's REST API, it refused a request, or the answer was not Airflow's."""


class AirflowApiUnavailableError(AirflowApiError):
    """Airflow did not answer, or answered that it is unavailable: it is starting, stopping or unreachable."""

    retriable = True


class LeaseLostError(TieringError):
    """A lease was not renewed in time or was released, or another worker has it: stop at once, change nothing."""

    retriable = True


class LeaseAheadError(TieringError):
    """A stored lease ends later than its length allows, because a clock is or was wrong. The lease is ignored."""


class QuotaExceededError(TieringError):
    """A topic exceeds its threshold of bytes a second while all topics exceed the broker's: the topic has to wait."""

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


class ApprovalRequiredError(TieringError):
    """A plan that deletes, or that of a handover, was not approved, nor, for an expiration, released by the limits."""


class RunWithdrawnError(TieringError):
    """A run that deletes was withdrawn: it deletes nothing more, and is never released again."""


class DatabaseSetBackError(TieringError):
    """The database was set back and may lack what it knew before: no segment expires, no orphan object is removed."""


class AnswerRefusedError(TieringError):
    """An approval does not count: its user is not an approver now, it is of another plan, or its time is impossible."""


class LimitRefusedError(TieringError):
    """A DAG run or a user may not loosen a deletion limit: no approver asked, or the run is old or was begun again."""


class ClockDisagreesError(TieringError):
    """The database's clock, which decides about retention, contradicts another clock or an event."""


class ClockBehindError(ClockDisagreesError):
    """The database's clock is a little before the time of an event that it dated itself: it will catch up."""

    retriable = True


class UnprovedReplacementError(TieringError):
    """A superseded or abandoned copy is kept: its replacement is not proved whole, or the store is in doubt."""


class DataDocsError(TieringError):
    """A page, or the results it is built from, cannot be written; the message names the directory and its setting."""


class RuleEvaluationError(TieringError):
    """A quality rule could not be applied to the measurements: it neither passes nor fails a segment."""


class SendingStoppedError(TieringError):
    """Sending is stopped from outside (pause, shutdown, parent process gone)."""

    retriable = True


class FormatError(TieringError):
    """Bytes break a format at byte `position` (0 if it is not known). `message` has the broken rule and its numbers."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message} (at byte {position})")
        self.message = message
        self.position = position


class UnknownVersionError(FormatError):
    """The version, or a member, is none that this release knows: a later one may have written valid content."""


class OldMagicError(FormatError):
    """A record batch has magic 0 or 1: it may be valid, but has no leader epoch, so it can never be tiered."""


class BatchTooLargeError(FormatError):
    """A batch is larger, or would decompress to more, than the limit. It need not be damaged."""


class SourceError(TieringError):
    """A file or replica of a log source could not be used.

    Attributes:
        path: names the file, directory, replica or segment for the message; do not open it.
        position: byte in that file; None if no position is known or all of it is meant.
        message: what was expected and what was found.
    """

    def __init__(self, path: str, message: str, position: int | None = None) -> None:
        where = printable(path) if position is None else f"{printable(path)} at byte {position}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.position = position
        self.message = message


class SourceUnreadableError(SourceError):
    """Permission is denied, a read failed, or the path is not the regular file or directory that was expected."""


class SourceVanishedError(SourceError):
    """The file, directory or segment was not found, or belongs to another topic id now."""

    retriable = True


class SourceChangedError(SourceError):
    """The replica, its topic's owner or what is copied of it changed since a listing, plan or check: plan it again."""

    retriable = True


class CorruptFileError(SourceError):
    """A file of the source breaks its format, or a file, an entry or offsets are missing."""


class UnusableBatchesError(CorruptFileError):
    """A leader's answer does not continue its log; the message begins with the `FetchFault`, such as `missing`."""


class CompactedSegmentError(SourceError):
    """Compaction removed offsets of a segment: the file is valid, and cannot be copied."""


class HostileNameError(SourceError):
    """No broker writes a file or directory of this name, or it is a symbolic link, wherever that leads."""


class ClusterMetadataError(TieringError):
    """Cluster metadata is unknown, or metadata, log directories and settings contradict each other."""


class BrokersError(ClusterMetadataError):
    """A request to the brokers failed; the message says which, and why."""


class BrokersUnavailableError(BrokersError):
    """A broker does not answer in time, or is in a state that passes, such as the election of a leader."""

    retriable = True


class BrokersLoginError(BrokersError):
    """TLS or SASL failed: for example, a certificate, a user or password, or a mechanism that is not enabled."""


class BrokersForbiddenError(BrokersError):
    """The user is not authorised for the request."""


class BrokersRefusedError(BrokersError):
    """The brokers refused a request, a name or a value, do not support the request, or sent an unusable response."""


class UnknownTopicError(BrokersError):
    """The topic or partition was not found, or the topic's name belongs to another topic id."""


class ForeignClusterError(BrokersError):
    """The brokers belong to another cluster than the one that the database serves; no decision is based on both."""


class MetadataTopicError(TieringError):
    """An error of the topic with the brokers' remote log metadata."""


class MetadataTopicUnavailableError(MetadataTopicError):
    """No answer in time, no leader, or another error that may pass. A record being sent may be in the topic."""

    retriable = True


class MetadataTopicRefusedError(MetadataTopicError):
    """The brokers refused: unknown topic or partition, no authorization, a wrong password, or an invalid record."""


class MetadataTopicRangeError(MetadataTopicError):
    """The partition lacks these offsets (by now): retention removed them, its end is lost, or it is another topic."""


class MetadataTopicReplacedError(MetadataTopicError):
    """The topic has another id or partition count than when it was first read: reading on would skip records."""


class PoisonRecordError(MetadataTopicError):
    """Kafka's reader does not accept the record: every broker that reads its partition stops there, at every start."""


class PublicationError(TieringError):
    """Remote log metadata of a partition cannot be published."""


class PublicationRefusedError(PublicationError):
    """A rule forbids the next record: that record was not sent; earlier ones may have been."""


class ForeignRecordError(PublicationError):
    """Another writer wrote about a published partition, or records are missing or poison: no more are sent."""


class HandoverForgottenError(TieringError):
    """A handover suspends a topic's retention or copies, and makes no progress: a person has to resume or undo it."""


class RemoteStorageError(TieringError):
    """The remote store refused or failed an operation on an object."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """The object, the index or the requested bytes are not in the store."""


class NoSuchIndexError(RemoteResourceNotFoundError):
    """The segment was stored without this index, as a segment without aborted transactions may be."""


class RemoteObjectExistsError(RemoteStorageError):
    """A write that must not overwrite found an object."""


class RemoteChecksumError(RemoteStorageError):
    """Bytes that were sent, stored or fetched have a wrong length or CRC-32C, or break their format."""


class RemoteStorageFullError(RemoteStorageError):
    """Too little free space, or an exhausted storage quota."""


class RemoteStoreMissingError(RemoteStorageError):
    """There is no such bucket. A bucket created now would be empty, without our marker and copied segments."""


class RemoteAccessDeniedError(RemoteStorageError):
    """The store denied access (credentials, archive tier, file mode), which says nothing about the stored bytes."""


class RemoteStorageUnavailableError(RemoteStorageError):
    """The store sent no usable response or an error that may pass, or other runs changed its marker at each try."""

    retriable = True


class ObjectKeyError(RemoteStorageError):
    """A key that the layout never writes, is not of the required kind, leads out of the prefix, or is too long."""


class SegmentKeyError(SettingError):
    """A segment is encrypted, and its private key is missing here. That says nothing about the stored bytes."""


class StoredChunkError(RemoteStorageError):
    """A stored part of a segment is changed, truncated, encrypted with another key, or exceeds a limit."""


class CustomMetadataTooLargeError(RemoteStorageError):
    """The custom metadata exceeds the brokers' limit: a broker deletes such a copy and stops copying the partition."""


class StoreInDoubtError(RemoteStorageError):
    """Too many segments lack objects, or one does and another, which passed, is not whole: perhaps a wrong store."""


class ForeignStoreError(RemoteStorageError):
    """The store's marker, location or directory is not this database's: no further object is written or deleted."""


class StorePlaceUnknownError(ForeignStoreError):
    """The database lacks URL, layout and key prefix of its store; `./tiering migrate` records those of the settings."""


class RemoteMetadataError(TieringError):
    """The metadata store refused an operation."""


class IllegalTransitionError(RemoteMetadataError):
    """The segment state machine has no such transition, or a new segment's id is in use or is being removed."""


class StateConflictError(RemoteMetadataError):
    """What the database has (a state, an owner, a plan, a decision) is not what the caller expected or asks for."""


class HistoryChangedError(StateConflictError):
    """A person decided to follow another history of the partition after the caller read its state."""

    retriable = True


class UnknownSegmentError(RemoteMetadataError):
    """No segment has this id, or these offsets; in an adoption also: the metadata have the segment already."""


class OffsetOutOfRangeError(RemoteMetadataError):
    """The offset is below the log start, or no served segment holds it under the leader epoch, if one is given."""


class MetadataUnavailableError(RemoteMetadataError):
    """The database is locked, unreachable, not set up, at another schema revision than expected, or being rebuilt."""

    retriable = True


class RehearsalError(TieringError):
    """A handover cannot be rehearsed."""


class KafkaMissingError(RehearsalError):
    """There is no Java, no Maven, or not all the jars of a broker; the message says what is missing or failed."""


class RehearsalSpaceError(RehearsalError):
    """The temporary directory has too little space for a rehearsal."""


class BrokerProcessError(RehearsalError):
    """A broker on this host was not formatted, ended, was not ready in time, or does not run."""


class PortTakenError(BrokerProcessError):
    """Another process listens on the port of the broker."""
