"""Settings, configs, quotas, queues, pools, approvals, verdicts: what keeps work from being done."""

from include.tiering.errors.root import TieringError, printable


class SettingError(TieringError):
    """A setting or argument is unusable; the text names it, its value and what is accepted."""


class ConfigRefusedError(TieringError):
    """A change of dynamic configs is sound by itself but breaks a rule together with the others; the text has the
    numbers. Nothing was changed."""


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


class RunWithdrawnError(TieringError):
    """A run that deletes was withdrawn: nothing more of it is deleted, and it is never released again."""


class DatabaseSetBackError(TieringError):
    """An audit found that the database was set back, and none has cleared that since: nothing expires by what it
    says."""


class AnswerRefusedError(TieringError):
    """A person answered, and the answer does not count: not theirs to give, about another plan, or at an impossible
    time. Nothing was changed by it."""


class LimitRefusedError(TieringError):
    """A change loosens a limit of deletions, and who asked for it may not approve deletions. Nothing was changed."""


class ClockDisagreesError(TieringError):
    """The database's clock, by which retention is decided, is contradicted; the text names both times."""


class ClockBehindError(ClockDisagreesError):
    """The database's clock was set back a little: it lies before what it dated itself, and catches up."""

    retriable = True


class UnprovedReplacementError(TieringError):
    """A superseded segment is kept: of the copy that took its place it is not proved that it is there, whole and right.
    The text names both."""


class DataDocsError(TieringError):
    """A page, or the results it is built from, cannot be written; the text names the directory and its setting."""


class JudgeError(TieringError):
    """A quality rule could not be applied to the measures: nothing passes and nothing fails by it."""


class SendingStoppedError(TieringError):
    """Sending was stopped from outside (pause, shutdown, parent process gone)."""

    retriable = True
