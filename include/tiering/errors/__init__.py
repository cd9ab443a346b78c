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
|-- ApprovalRequiredError            a plan that deletes was stopped by the brake and nobody approved it
|-- RunWithdrawnError                a run that deletes was withdrawn, and is never released again
|-- DatabaseSetBackError             an audit found that the database was set back: nothing expires
|-- AnswerRefusedError               a person's answer about a plan does not count
|-- LimitRefusedError                a limit of deletions is loosened by who may not approve deletions
|-- ClockDisagreesError              the database's clock is contradicted by another one, or by its own events
|   `-- ClockBehindError             it was set back a little, and catches up    (retriable)
|-- UnprovedReplacementError         a superseded segment stays until the copy in its place is proved
|-- HandoverForgottenError           a topic's retention is held back and nobody carries its hand-over on
|-- RehearsalError                   a hand-over cannot be rehearsed
|   |-- KafkaMissingError            no Java, or not all the jars of a broker
|   |-- RehearsalRoomError           no room for what would be copied
|   `-- BrokerProcessError           a broker that was started here ended, or was not ready in time
|       `-- PortTakenError           somebody else listens on its port
|-- DataDocsError                    the pages about quality runs cannot be written
|-- JudgeError                       a quality rule could not be applied: no verdict is given
`-- SendingStoppedError              paused, or the parent process died       (retriable)
"""

from include.tiering.errors.brokers import (
    BrokersError,
    BrokersForbiddenError,
    BrokersLoginError,
    BrokersRefusedError,
    BrokersUnavailableError,
    ClusterFactsError,
    ForeignClusterError,
    ForeignRecordError,
    HandoverForgottenError,
    MetadataTopicError,
    MetadataTopicRangeError,
    MetadataTopicRefusedError,
    MetadataTopicReplacedError,
    MetadataTopicUnavailableError,
    PoisonRecordError,
    PublicationError,
    PublicationRefusedError,
    UnknownTopicError,
)
from include.tiering.errors.rehearsal import (
    BrokerProcessError,
    KafkaMissingError,
    PortTakenError,
    RehearsalError,
    RehearsalRoomError,
)
from include.tiering.errors.remote_metadata import (
    HistoryChangedError,
    IllegalTransitionError,
    MetadataUnavailableError,
    OffsetOutOfRangeError,
    RemoteMetadataError,
    StateConflictError,
    UnknownSegmentError,
)
from include.tiering.errors.remote_storage import (
    CustomMetadataTooLargeError,
    ForeignStoreError,
    ObjectKeyError,
    RemoteAccessDeniedError,
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    SegmentKeyError,
    StoredChunkError,
    StoreInDoubtError,
    StorePlaceUnknownError,
)
from include.tiering.errors.root import (
    TieringError,
    printable,
)
from include.tiering.errors.source import (
    BatchTooLargeError,
    CompactedSegmentError,
    CorruptFileError,
    FormatError,
    HostileNameError,
    OldMagicError,
    SourceChangedError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.errors.work import (
    AirflowApiError,
    AirflowApiUnavailableError,
    AnswerRefusedError,
    ApprovalRequiredError,
    ClockBehindError,
    ClockDisagreesError,
    ConfigNotTakenError,
    ConfigRefusedError,
    DatabaseSetBackError,
    DataDocsError,
    JudgeError,
    LeaseAheadError,
    LeaseLostError,
    LimitRefusedError,
    QueueClosedError,
    QueueEmptyError,
    QueueFullError,
    QuotaExceededError,
    RunWithdrawnError,
    SendingStoppedError,
    SettingError,
    UnprovedReplacementError,
)

__all__ = [
    "AirflowApiError",
    "AirflowApiUnavailableError",
    "AnswerRefusedError",
    "ApprovalRequiredError",
    "BatchTooLargeError",
    "BrokerProcessError",
    "BrokersError",
    "BrokersForbiddenError",
    "BrokersLoginError",
    "BrokersRefusedError",
    "BrokersUnavailableError",
    "ClockBehindError",
    "ClockDisagreesError",
    "ClusterFactsError",
    "CompactedSegmentError",
    "ConfigNotTakenError",
    "ConfigRefusedError",
    "CorruptFileError",
    "CustomMetadataTooLargeError",
    "DataDocsError",
    "DatabaseSetBackError",
    "ForeignClusterError",
    "ForeignRecordError",
    "ForeignStoreError",
    "FormatError",
    "HandoverForgottenError",
    "HistoryChangedError",
    "HostileNameError",
    "IllegalTransitionError",
    "JudgeError",
    "KafkaMissingError",
    "LeaseAheadError",
    "LeaseLostError",
    "LimitRefusedError",
    "MetadataTopicError",
    "MetadataTopicRangeError",
    "MetadataTopicRefusedError",
    "MetadataTopicReplacedError",
    "MetadataTopicUnavailableError",
    "MetadataUnavailableError",
    "ObjectKeyError",
    "OffsetOutOfRangeError",
    "OldMagicError",
    "PoisonRecordError",
    "PortTakenError",
    "PublicationError",
    "PublicationRefusedError",
    "QueueClosedError",
    "QueueEmptyError",
    "QueueFullError",
    "QuotaExceededError",
    "RehearsalError",
    "RehearsalRoomError",
    "RemoteAccessDeniedError",
    "RemoteChecksumError",
    "RemoteMetadataError",
    "RemoteObjectExistsError",
    "RemoteResourceNotFoundError",
    "RemoteStorageError",
    "RemoteStorageFullError",
    "RemoteStorageUnavailableError",
    "RemoteStoreMissingError",
    "RunWithdrawnError",
    "SegmentKeyError",
    "SendingStoppedError",
    "SettingError",
    "SourceChangedError",
    "SourceError",
    "SourceUnreadableError",
    "SourceVanishedError",
    "StateConflictError",
    "StoreInDoubtError",
    "StorePlaceUnknownError",
    "StoredChunkError",
    "TieringError",
    "UnknownSegmentError",
    "UnknownTopicError",
    "UnprovedReplacementError",
    "printable",
]
