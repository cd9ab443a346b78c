"""Errors of operators. They are derived from TieringError, whose `retriable` says whether the task is retried."""

from include.tiering.errors import AirflowApiError as AirflowApiError
from include.tiering.errors import AirflowApiUnavailableError as AirflowApiUnavailableError
from include.tiering.errors import TieringError


class NotReadyError(TieringError):
    """The platform is not ready for a run, and waiting does not help, or did not help in time."""


class QualityGateError(TieringError):
    """Segments could not be copied, or failed a rule; the message has a line for each, or for the first of them."""


class PlanFindingsError(TieringError):
    """The plan has findings for a person (damaged items, stopped partitions, holes), or work was left unexplained.

    The other planned segments were copied, except in a dry run.
    """


class PlanWithdrawnError(TieringError):
    """A plan was withdrawn.

    Either it was approved, but would not be planned as a whole any more: nothing was deleted. Or a person withdrew its
    run: no further segment is deleted.
    """


class ApprovalMissingError(TieringError):
    """A run waited for an approval, and there was no answer in time. Nothing was deleted."""


class DeletionFailedError(TieringError):
    """Planned segments or objects were not deleted, and a retry does not help. Others may have been deleted."""


class AuditAlarmError(TieringError):
    """Objects of segments are missing or have another length, or a guard forbids removals; the message names them."""


class RemovalIncompleteError(TieringError):
    """Approved objects could not be removed this time; they are still planned."""

    retriable = True


class HandoverRefusedError(TieringError):
    """A handover stopped: a check failed, or a person must act.

    Retention overrides that are in force stay until the handover continues or is undone.
    """


class HandoverWaitsError(TieringError):
    """A handover waits for brokers, a lease or a checkpoint: a retry continues it."""

    retriable = True


class IngestFindingsError(TieringError):
    """The brokers' metadata records need a person; one line for each finding. All readable records were read."""


class IngestIncompleteError(TieringError):
    """A partition of the brokers' metadata topic could not be read to its end this time."""

    retriable = True


class RestoreFindingsError(TieringError):
    """Some of the wanted offsets are not restored; the log of the task names them. All others are."""


class DrillFailedError(TieringError):
    """A recovery drill found something that cannot be recovered; the message names it."""


class SizeDifferenceError(TieringError):
    """The sizes counted by Spark differ from the counters or from the store. They are reported, never corrected."""


class SparkJobError(TieringError):
    """A Spark job ended with findings or because of a wrong setting: a retry does not help."""


class SparkJobSurplusError(SparkJobError):
    """A Spark job ended because its pool became too small for it; it recorded nothing in halves."""


class SparkJobRetriableError(SparkJobError):
    """A Spark job ended with the exit code for a retry, or was killed."""

    retriable = True
