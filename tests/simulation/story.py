"""A schedule told in numbered sentences, for a person who wants to know what happened."""

import re
from collections.abc import Callable, Iterable

from tests.simulation.kernel.scheduler import START_MS
from tests.simulation.schedule import Outcome, TraceLine

_KEY = re.compile(r"[\w.-]+-[\w-]{22}/(\d+)/0*(\d+)-([\w-]{6})[\w-]{16}\.(\S+)")
_TOKEN = re.compile(r"token (\d+)")
_STATES = {", 2,": "DELETE_STARTED", ", 3,": "DELETE_FINISHED"}


def _first(detail: str) -> str:
    return detail.split(", ", 1)[0]


def _state_of(detail: str) -> str:
    found = next((name for mark, name in _STATES.items() if mark in detail), "its next state")
    return f"records {found} for {detail.split('], ')[0].strip('[')}"


def _raised(detail: str) -> str:
    partition, offset = detail.split(", ")[:2]
    return f"raises our log start of {partition} to {offset}"


_TEXTS: dict[str, Callable[[str], str]] = {
    "source.scan": lambda _: "scans the brokers",
    "registry.set_owner": lambda _: "records the topic's owner",
    "work.save_plan": lambda detail: f"stores the plan {_first(detail)}",
    "gets a lease": lambda detail: f"gets the lease {detail}",
    "work.release": lambda detail: f"gives back {detail}",
    "metadata.add_segment": lambda detail: f"records STARTED for {_first(detail)}",
    "store.put completes": lambda detail: f"stores {detail}",
    "opened.recheck": lambda _: "looks at the source again",
    "metadata.update_segment": lambda detail: f"records FINISHED for {_first(detail)}",
    "metadata.advance_deletion": _state_of,
    "metadata.raise_log_start": _raised,
    "store.delete": lambda detail: f"deletes {detail}",
    "store.abort upload": lambda detail: f"aborts the upload of {detail}",
    "deletions.save_plan": lambda detail: f"stores the plan {_first(detail)}, which deletes",
    "deletions.approve": lambda detail: f"approves {_first(detail)}",
    "slow": lambda _: "takes its time",
    "killed": lambda detail: f"is killed {detail}",
    "stalls": lambda detail: f"stalls {detail}",
    "ends": lambda detail: f"ends with {detail}",
}


def story_of(outcome: Outcome) -> str:
    """Numbered sentences with the time in seconds, and what broke in the end."""
    sentences = list(_sentences(outcome.trace))
    lines = [f"{number:3}. {sentence}" for number, sentence in enumerate(sentences, start=1)]
    if outcome.violation is not None:
        lines.append(f"     broken: {outcome.violation.invariant}")
        lines.append(f"     {_short(outcome.violation.detail)}")
    return "\n".join(lines)


def _sentences(trace: Iterable[TraceLine]) -> Iterable[str]:
    for _, now_ms, actor, what, detail, outcome in trace:
        at = f"{(now_ms - START_MS) / 1000:8.1f} s  "
        if actor == "world":
            yield f"{at}{what}{': ' + detail if detail else ''}"
        elif actor == "store":
            yield f"{at}the store {what}: {_short(detail)}"
        elif what in _TEXTS:
            yield f"{at}{actor} {_short(_TEXTS[what](detail))}{' -> ' + outcome if outcome else ''}"
        elif outcome and what not in ("ended", "because"):
            yield f"{at}{actor} {what} {_short(detail)[:60]} -> {outcome}"


def _short(text: str) -> str:
    """Keys and tokens as a person compares them."""
    text = _KEY.sub(lambda found: f"the {found[4]} of {found[1]}/{found[2]} ({found[3]})", text)
    return _TOKEN.sub(lambda found: f"token ..{found[1][-6:]}", text)
