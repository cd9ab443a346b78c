"""The approval of a plan: the question for a person, the answer, and whether the answer releases the plan.

The planning task stores the question in the database. The approval task reads the question from there and shows it;
when Airflow returns the answer, the task first stores the answer in the database. So neither the question nor the
answer passes through an XCom, which users of Airflow can write.

| step | what a crash after it leaves |
|---|---|
| put | a question that was not shown; nothing is deleted |
| show | a question without an answer; the approval task starts again and shows the same question |
| answer | the answer; the release task checks it each time it is started |

Airflow accepts an answer only from the users who are assigned to the approval task. When the plan is released,
`approval_author` checks again that the user may approve, because the list may have changed since the answer. It also
checks that the times of question and answer fit together, because people read them later. `approval_question` writes
the text about a plan that deletes segments.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.configs.config_store import ALL_BROKERS, ConfigStore
from include.tiering.configs.rules import Loosening, loosenings
from include.tiering.errors import AnswerRefusedError, ApprovalRequiredError, printable
from include.tiering.model.segments import Uuid
from include.tiering.presentation import TopicNames, count
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from include.tiering.runs.deletion_run import PlannedExpiration
from include.tiering.settings import TieringSettings
from include.tiering.units import format_bytes, format_utc


class Answer(StrEnum):
    """What the person chose; REJECTED if nobody answered in time."""

    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer as it was stored.

    `user_id` is None if no user answered in time. `answered_at_ms` is a time of Airflow's clock, `recorded_at_ms` a
    time of the database's clock.
    """

    answer: Answer
    user_id: str | None
    answered_at_ms: int
    recorded_at_ms: int


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The question of one DAG run about the plan of `subject`: a planned run, or a handover.

    `shown_at_ms` is None as long as no task has shown the question to a person; `given` is None as long as no answer is
    stored.
    """

    asked_in: str
    subject: str
    plan_hash: str
    headline: str
    body: str
    shown_at_ms: int | None = None
    given: GivenAnswer | None = None


class PlanQuestions(Protocol):
    """The questions of one cluster, one for each DAG run. Every method may raise MetadataUnavailableError."""

    def put(self, asked_in: str, *, subject: str, plan_hash: str, headline: str, body: str) -> None:
        """Store the question of a DAG run. A stored question that was not shown is replaced; a shown one stays.

        Raises:
            StateConflictError: this DAG run has shown a question about another plan or subject. Airflow keeps the text
                of a task's first question, so another plan needs another DAG run.
        """
        ...

    def show(self, asked_in: str) -> PlanQuestion:
        """Mark the question as shown, remove an earlier answer, and return the question.

        Raises:
            StateConflictError: no question is stored.
        """
        ...

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        """Store the answer that Airflow reports, in place of an earlier one, with an event.

        Raises:
            StateConflictError: no question is stored, or it was not shown.
        """
        ...

    def find(self, asked_in: str) -> PlanQuestion | None:
        """Return the question of a DAG run, None if none is stored."""
        ...

    def unanswered(self, *, since_ms: int, at_most: int) -> Sequence[PlanQuestion]:
        """Return the newest questions shown at `since_ms` or later that have no answer, the newest first.

        Those about a run that was withdrawn, or released without this answer, are left out.
        """
        ...

    def last_approved_ms(self) -> int:
        """Return when the newest approved question was stored, in UTC milliseconds; 0 if none was approved."""
        ...


_TEXT_TAKES_MS: Final = 60_000
"""Longest time assumed from reading the limits to storing a question; changes within it are listed once more."""


class QuestionService:
    """Stores answers to questions about plans of any kind.

    Args:
        claim: claims the remote store, so that a copy of the database from before a rejection can no longer use the
            store; returns why the claim failed, None if it succeeded.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        questions: PlanQuestions,
        configs: ConfigStore,
        claim: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._questions = questions
        self._configs = configs
        self._claim = claim

    def answer(self, asked_in: str, answer: Answer, *, user_id: str | None, answered_at_ms: int) -> PlanQuestion:
        """Store the answer. After a rejection, try to claim the remote store.

        The claim is needed because a copy of the database from before the rejection holds the same plan, with its
        question still open. The answer is stored even if the claim fails.

        Raises:
            StateConflictError: no question is stored, or it was not shown.
        """
        answered = self._questions.answer(asked_in, answer, user_id=user_id, answered_at_ms=answered_at_ms)
        if answer is Answer.REJECTED:
            self._claim()
        return answered

    def loosened_since_approval(self) -> Sequence[Loosening]:
        """Return the changes that loosened a deletion limit, oldest first.

        Let the start be `_TEXT_TAKES_MS` before the time at which the newest approved question was stored. Changes from
        the start (inclusive) on are returned; if no question was approved, all changes.
        """
        since_ms = self._questions.last_approved_ms() - _TEXT_TAKES_MS
        return loosenings(self._configs.history(ALL_BROKERS), self._settings, since_ms=since_ms)


CLOCKS_MAY_DIFFER_MS: Final = 5 * 60 * 1000


def approval_author(
    found: PlanQuestion | None, *, asked_in: str, subject: str, plan_hash: str | None, approvers: Collection[str]
) -> str:
    """Return who approved exactly this plan, and in which DAG run, as text for the event log.

    If `approvers` is empty, every user whom Airflow let answer may approve.

    Raises:
        ApprovalRequiredError: no question was shown, no answer is stored, none came in time, or the plan was rejected.
        AnswerRefusedError: the answer is about another plan or subject, or is by a user who may not approve now, or is
            dated more than `CLOCKS_MAY_DIFFER_MS` after it was stored or before the question was shown.
    """
    if found is None or found.shown_at_ms is None or found.given is None:
        raise ApprovalRequiredError(
            f"plan {plan_hash} of {subject} needs an approval and Airflow has handed none to the approval task, "
            f"whatever the task states of {printable(asked_in)} are: nothing was deleted. Trigger another DAG run"
        )
    given = found.given
    if (found.subject, found.plan_hash) != (subject, plan_hash):
        raise AnswerRefusedError(
            f"{printable(asked_in)} asked about plan {found.plan_hash} of {found.subject}, not about plan {plan_hash} "
            f"of {subject}: nothing was deleted. Trigger another DAG run"
        )
    if given.user_id is None:
        raise ApprovalRequiredError(f"no answer came in time to the question about plan {plan_hash} of {subject}")
    if given.answer is not Answer.APPROVED:
        raise ApprovalRequiredError(f"{given.user_id} rejected plan {plan_hash} of {subject}")
    if approvers and given.user_id not in approvers:
        raise AnswerRefusedError(
            f"plan {plan_hash} of {subject} was approved by {given.user_id}, who is not among those who may approve "
            f"now ({', '.join(approvers)}; [tiering] expiration_approvers): nothing was deleted. Trigger another DAG "
            "run, which asks them"
        )
    answered = format_utc(given.answered_at_ms)
    if given.answered_at_ms > given.recorded_at_ms + CLOCKS_MAY_DIFFER_MS:
        raise AnswerRefusedError(
            f"by Airflow's clock plan {plan_hash} was approved at {answered}, which for the database at "
            f"{format_utc(given.recorded_at_ms)} is in the future: set the clocks right, then trigger another DAG run"
        )
    if given.answered_at_ms < found.shown_at_ms - CLOCKS_MAY_DIFFER_MS:
        raise AnswerRefusedError(
            f"by Airflow's clock plan {plan_hash} was approved at {answered}, before it was shown at "
            f"{format_utc(found.shown_at_ms)}: set the clocks right, then trigger another DAG run"
        )
    return f"{given.user_id} ({asked_in}, answered {answered})"


_MOST_TOPICS: Final = 50
_MOST_LOOSENED: Final = 20
_SHORT_HASH: Final = 12
_COLUMNS: Final = ("topic", "segments", "bytes", "share", "last 24 h", "remote now", "why")


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """The text of a question: `subject` is one line of plain text, `body` is Markdown."""

    subject: str
    body: str


def approval_question(
    limit_report: DeletionLimitReport,
    expirations: Sequence[PlannedExpiration],
    shared_names: Collection[str] = (),
    loosened: Sequence[Loosening] = (),
) -> ApprovalQuestion:
    """Write the question about a plan that deletes segments; the text identifies the plan by its hash.

    The question lists at most 50 reasons, at most 50 topics (those that lose the largest share first), and at most 20
    loosened limits (the newest).

    Args:
        limit_report: why the plan needs an approval, and what each topic loses.
        expirations: the plan.
        shared_names: names that more than one topic has; these topics are shown with their id.
        loosened: changes after which more may be deleted without an approval, or sooner; oldest first.
    """
    names = TopicNames((planned.topic_id_partition for planned in expirations), shared=shared_names)
    reasons = _reasons(expirations)
    segments = sum(counted.total() for counted in reasons.values())
    size_bytes = sum(deletion.size_bytes for planned in expirations for deletion in planned.deletions)
    what = f"{count(segments, 'segment')} ({format_bytes(size_bytes)}) of {count(len(reasons), 'topic')}"
    actions = sorted(limit_report.actions, key=lambda action: (-action.share, action.topic))
    lines = [
        f"Plan `{limit_report.plan_hash}` of run `{limit_report.run_id}` deletes {what} from remote storage.",
        "",
        *(f"* {reason}" for reason in limit_report.reasons[:_MOST_TOPICS]),
        *_left_out(len(limit_report.reasons), "reason"),
        "",
        *loosened_lines(loosened),
        *_topic_table(actions[:_MOST_TOPICS], reasons, names),
        *_left_out(len(actions), "topic"),
        "",
        "The share: bytes of this plan and bytes deleted within 24 hours (each once), of what there was before both.",
        "**Approve** deletes at most this plan. **Reject**, or no answer in time, deletes nothing.",
        "If a retention was shortened by mistake: reject, then correct it (`./tiering configs --entity-type topics`).",
    ]
    return ApprovalQuestion(f"Delete {what}? Plan {limit_report.plan_hash[:_SHORT_HASH]}", "\n".join(lines))


def loosened_lines(loosened: Sequence[Loosening]) -> Iterator[str]:
    """Yield lines of Markdown: which limits were loosened, by whom and when; no line if no limit was loosened."""
    if not loosened:
        return
    yield "**Limits of deletions were loosened since the last approval:**"
    yield ""
    if len(loosened) > _MOST_LOOSENED:
        yield f"* {count(len(loosened) - _MOST_LOOSENED, 'earlier change')}: `./tiering configs --describe --history`"
    yield from (f"* {loosening}" for loosening in loosened[-_MOST_LOOSENED:])
    yield ""


def _reasons(expirations: Sequence[PlannedExpiration]) -> dict[Uuid, Counter[str]]:
    """Count segments by topic and reason."""
    found: dict[Uuid, Counter[str]] = {}
    for planned in expirations:
        counted = found.setdefault(planned.topic_id_partition.topic_id, Counter())
        counted.update(deletion.reason for deletion in planned.deletions)
    return found


def _topic_table(actions: Sequence[TopicAction], reasons: dict[Uuid, Counter[str]], names: TopicNames) -> Iterator[str]:
    yield _table_row(_COLUMNS)
    yield _table_row(("---",) * len(_COLUMNS))
    for action in actions:
        counted = reasons.get(action.topic_id, Counter[str]())
        yield _table_row(
            (
                f"`{names.topic(action.topic, action.topic_id)}`",
                str(counted.total()),
                format_bytes(action.planned_bytes),
                f"{action.share:.1%}",
                format_bytes(action.recent_bytes),
                format_bytes(action.remote_bytes),
                ", ".join(f"{reason} {number}" for reason, number in counted.items()),
            )
        )


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _left_out(total: int, noun: str) -> Iterator[str]:
    if total > _MOST_TOPICS:
        yield ""
        yield f"and {count(total - _MOST_TOPICS, f'more {noun}')}"
