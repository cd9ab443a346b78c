"""The web page of one expiration DAG run: its planned deletions, its status, and the button that withdraws it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from include.tiering.html_markup import content_security_policy, document, element, number, table
from include.tiering.presentation import TopicNames, count
from include.tiering.runs.approval import Answer, PlanQuestion
from include.tiering.runs.deletion_limits import TopicAction
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun, PlannedExpiration, TopicTotals
from include.tiering.units import format_bytes, format_utc

MOST_TOPICS: Final = 500
_HEADS: Final = ("topic", "segments>", "bytes>", "share>", "deleted>", "failed>", "left>")
SCRIPT: Final = """
for (const button of document.querySelectorAll("button[data-address]")) {
  button.addEventListener("click", async () => {
    const said = document.getElementById("said");
    button.disabled = true;
    said.textContent = "Withdrawing";
    try {
      const answer = await fetch(button.dataset.address, {
        method: "POST",
        credentials: "same-origin",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({dag_run_id: button.dataset.dagRun, run_id: button.dataset.run}),
      });
      const content = await answer.json();
      said.textContent = String(content.detail);
      button.disabled = answer.ok;
    } catch (error) {
      said.textContent = "The server gave no answer: load this page again to see whether the plan is withdrawn.";
      button.disabled = false;
    }
  });
}
"""
"""Sends the ids in the button's attributes to the server of this page, and shows the response as text."""

POLICY: Final = content_security_policy(SCRIPT)


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """One planned run of a DAG run. `question` is the approval that the DAG run requested for it, if any."""

    run: DeletionRun
    expirations: Sequence[PlannedExpiration]
    items: Sequence[DeletionItem]
    totals: Sequence[TopicTotals]
    question: PlanQuestion | None = None

    @property
    def left(self) -> int:
        return sum(item.outcome is DeletionOutcome.PLANNED for item in self.items)

    @property
    def may_be_withdrawn(self) -> bool:
        """Whether the run is not withdrawn and still has planned deletions, so that a withdrawal keeps segments."""
        return self.run.withdrawal is None and self.left > 0


def deletion_page(
    dag_run_id: str, plans: Sequence[ShownPlan], *, withdraw_at: str | None, shared_names: Collection[str] = ()
) -> bytes:
    """Return the page, with the newest of the `plans` first, which are given oldest first.

    `withdraw_at` is the address to which the button sends; None if the user may not withdraw. `shared_names` are names
    that several topics have.
    """
    body = [element("h1", f"Deletion plan of {dag_run_id}")]
    if not plans:
        body.append(element("p", "This run has planned no deletion.", class_="dim"))
    for plan in reversed(plans):
        body += _plan(dag_run_id, plan, withdraw_at, shared_names)
    body.append(element("p", element("output", id="said")))
    return document(f"Deletion plan of {dag_run_id}", *body, script=SCRIPT)


def plan_status(plan: ShownPlan) -> tuple[str, str]:
    """Return the status of the plan as a sentence, and its colour."""
    run, question = plan.run, plan.question
    if run.withdrawal is not None:
        at = format_utc(run.withdrawal.withdrawn_at_ms)
        return f"Withdrawn by {run.withdrawal.author} at {at}: nothing more of it is deleted.", "good"
    if run.approval is not None:
        at = format_utc(run.approval.approved_at_ms)
        return f"Released by {run.approval.author} at {at}.", "odd"
    if run.needs_approval is False:
        return "Released without an approval: it is within the deletion limits.", "odd"
    given = None if question is None else question.given
    if given is not None and given.answer is Answer.REJECTED:
        return f"Rejected by {given.user_id or 'a timeout, without an answer'}: nothing is deleted.", "good"
    if run.needs_approval is None:
        return "Not released: it is a dry run, or the deletion limits were not applied yet.", "good"
    return "Not released: it waits for an approval.", "odd"


def _plan(dag_run_id: str, plan: ShownPlan, withdraw_at: str | None, shared: Collection[str]) -> Iterator[Element]:
    sentence, colour = plan_status(plan)
    segments, size = len(plan.items), sum(item.planned.size_bytes for item in plan.items)
    deleted = [item for item in plan.items if item.outcome is DeletionOutcome.DELETED]
    gone = sum(item.planned.size_bytes for item in deleted)
    yield element("p", sentence, class_=f"verdict {colour}")
    yield element(
        "dl",
        element("dt", "planned run"),
        element("dd", element("code", plan.run.run_id)),
        element("dt", "plan"),
        element("dd", element("code", plan.run.plan_hash)),
        element("dt", "deletes"),
        element("dd", f"{count(segments, 'segment')} ({format_bytes(size)})"),
        element("dt", "gone already"),
        element("dd", f"{count(len(deleted), 'segment')} ({format_bytes(gone)})"),
    )
    rows = list(_rows(plan, shared))
    yield table(_HEADS, rows[:MOST_TOPICS])
    if len(rows) > MOST_TOPICS:
        yield element("p", f"and {count(len(rows) - MOST_TOPICS, 'more topic')}", class_="dim")
    if plan.may_be_withdrawn and withdraw_at is not None:
        button = {"data-address": withdraw_at, "data-dag-run": dag_run_id, "data-run": plan.run.run_id}
        made = element("button", "Withdraw this plan", type="button")
        for name, value in button.items():
            made.set(name, value)
        yield element(
            "details",
            element("summary", "Withdraw this plan"),
            element(
                "p",
                "This is final: no more deletions of the plan begin, even if it was approved and a batch is running, "
                "and a later approval has no effect. Deleted segments stay deleted, and the next run completes begun "
                "deletions. The next run also makes a new plan, so first correct what led to this one.",
            ),
            element("p", made),
        )


def _rows(plan: ShownPlan, shared: Collection[str]) -> Iterator[Element]:
    names = TopicNames((expiration.topic_id_partition for expiration in plan.expirations), shared=shared)
    actions = {
        total.topic_id: TopicAction(
            total.topic_id,
            total.topic,
            total.planned_bytes,
            total.recent_bytes,
            total.remote_bytes,
            total.begun_bytes,
        )
        for total in plan.totals
    }
    of_topic: dict[str, list[DeletionItem]] = {}
    shares: dict[str, float] = {}
    for item in plan.items:
        partition = item.planned.segment_id.topic_id_partition
        name = names.topic(partition.topic, partition.topic_id)
        of_topic.setdefault(name, []).append(item)
        if partition.topic_id in actions:
            shares[name] = actions[partition.topic_id].share
    for name in sorted(of_topic, key=lambda topic: (-shares.get(topic, 0.0), topic)):
        items = of_topic[name]
        outcomes = [item.outcome for item in items]
        share = f"{shares[name]:.1%}" if name in shares else ""
        yield element(
            "tr",
            element("td", name, class_="name"),
            number(len(items)),
            element("td", format_bytes(sum(item.planned.size_bytes for item in items)), class_="number"),
            element("td", share, class_="number"),
            number(outcomes.count(DeletionOutcome.DELETED)),
            number(outcomes.count(DeletionOutcome.FAILED)),
            number(outcomes.count(DeletionOutcome.PLANNED)),
        )
