"""Errors of operators. They are derived from TieringError, so each class says whether to retry."""

from include.tiering.errors import AirflowApiError as AirflowApiError
from include.tiering.errors import AirflowApiUnavailableError as AirflowApiUnavailableError
from include.tiering.errors import TieringError


class NotReadyError(TieringError):
    """The platform is not ready for a run, and waiting does not help, or did not help in time."""


class QualityGateError(TieringError):
    """Segments of this run could not be copied or failed a rule; the message has one line for each."""


class PlanFindingsError(TieringError):
    """The plan has findings for a person: damaged items, stopped partitions, holes. The rest was copied."""


class PlanWithdrawnError(TieringError):
    """A plan was withdrawn.

    Either it was approved, but the current settings would keep a part of it: nothing was deleted. Or a person
    withdrew its run: no further segment is deleted.
    """


class ApprovalMissingError(TieringError):
    """A run waited for an approval, and there was no answer in time. Nothing was deleted."""


class DeletionFailedError(TieringError):
    """Segments could not be deleted, and a retry does not help. The rest was deleted."""


class AuditAlarmError(TieringError):
    """Offsets cannot be read, or store and database do not belong together; the message has one line for each."""


class RemovalIncompleteError(TieringError):
    """Approved objects could not be removed this time; they are still planned."""

    retriable = True


class HandoverRefusedError(TieringError):
    """A handover stopped: a check failed, or a person must act.

    Retention overrides that are in force stay until it continues or is undone.
    """


class HandoverWaitsError(TieringError):
    """A handover waits for brokers, a lease or a checkpoint: a retry continues it."""

    retriable = True


class IngestFindingsError(TieringError):
    """Records of brokers about their segments need a person; one line for each. All readable records were read."""


class IngestIncompleteError(TieringError):
    """A partition of the brokers' metadata topic could not be read to its end this time."""

    retriable = True


class SizeDifferenceError(TieringError):
    """The sizes counted by Spark differ from the counters. They are reported, never corrected silently."""


class SparkJobError(TieringError):
    """A Spark job ended with findings or a wrong setting: a retry does not help."""


class SparkJobRetriableError(SparkJobError):
    """A Spark job ended with the exit code for a retry, or was killed."""

    retriable = True
