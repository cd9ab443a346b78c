"""What can go wrong between Airflow and the library. Rooted in TieringError, so each says whether to retry."""

from include.tiering.errors import AirflowApiError as AirflowApiError
from include.tiering.errors import AirflowApiUnavailableError as AirflowApiUnavailableError
from include.tiering.errors import TieringError


class NotReadyError(TieringError):
    """The platform is not ready for a run, and waiting does not help, or did not help in time."""


class QualityGateError(TieringError):
    """Segments of this run could not be copied or failed a rule: one line each."""


class PlanFindingsError(TieringError):
    """The plan met what needs a person: damaged items, stopped partitions, holes. The rest was copied."""


class PlanWithdrawnError(TieringError):
    """A plan was approved, and part of it would stay by the settings of now: nothing was deleted. Or a person withdrew
    its run: nothing more of it is deleted."""


class ApprovalMissingError(TieringError):
    """A run waited for an approval and no answer came in time. Nothing was deleted."""


class DeletionFailedError(TieringError):
    """Segments could not be deleted and trying again at once does not help. The rest was deleted."""


class AuditAlarmError(TieringError):
    """Offsets that cannot be read, or a store and a database that do not belong together: one line each."""


class RemovalIncompleteError(TieringError):
    """Something that was approved could not be removed this time; what is left is still planned."""

    retriable = True


class HandoverRefusedError(TieringError):
    """A handover stopped: a check refused, or a person has to act. Its guards hold until it goes on or is undone."""


class HandoverWaitsError(TieringError):
    """A handover waits for brokers, a lease or a checkpoint: another try goes on with it."""

    retriable = True


class IngestFindingsError(TieringError):
    """What brokers wrote about their segments needs a person: one line each. What could be read was read."""


class IngestIncompleteError(TieringError):
    """A partition of the brokers' metadata topic could not be read to its end this time."""

    retriable = True


class SizeDifferenceError(TieringError):
    """The sizes counted by Spark differ from the counters: a finding, never silently corrected."""


class SparkJobError(TieringError):
    """A Spark job ended with findings or a wrong setting: trying again changes nothing."""


class SparkJobRetriableError(SparkJobError):
    """A Spark job said that another try can help, or was killed."""

    retriable = True
