"""What schedules have met: kinds of events, crash points, broker events during each step of a copy."""

from collections.abc import Mapping
from typing import Final

from include.tiering.audit.remove_orphans import RemovalStep
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.expiration.delete_segments import DeleteStep
from include.tiering.handover.rules import HandoverStep
from include.tiering.metadata_sync.publish import PublishStep
from tests.simulation.runner import Tally
from tests.simulation.world.focus import COMPACTION, FOCUSES, HAND_OVERS, HISTORIES, MISTAKES, PUBLICATION, Focus

BROKER_EVENTS: Final = (
    "records are produced",
    "checkpoints are written",
    "a clean election",
    "an unclean election",
    "a follower falls behind",
    "the broker's retention deletes",
    "kafka-delete-records",
    "a replica is moved to another directory",
    "a segment is rolled",
    "a transaction begins",
    "a transaction ends",
    "a topic is deleted",
    "a topic is created again",
    "remote.storage.enable is set",
    "a file is damaged",
    "the metadata log lags",
    "the metadata log catches up",
)
OTHER_EVENTS: Final = (
    "a verification begins",
    "a stored segment rots",
    "a segment fails",
    "an audit begins",
    "orphan objects appear",
    "a plan is approved",
    "a late write arrives",
    "an unclean election replaces what an abandoned copy holds",
    "the power fails",
    "the database is restored from a backup",
    "the owner is changed",
    "the copy quota is changed",
    "the copier pool is resized",
    "work is paused",
    "retention is changed",
    "delete-records is asked for",
    "a topic is published",
    "a late record arrives",
    "a handover is carried on",
    "a handover is approved",
    "a handover is undone",
    "remote storage is switched on by hand",
    "a topic's retention is changed",
    "a broker's copy task runs",
    "a broker's expiration runs",
    "a broker's local retention runs",
    "local segments go",
)
CRASH_POINTS: Final = (
    *dict.fromkeys(map(str, (*CopyStep, *DeleteStep, *RemovalStep))),
    *(f"record {step}" for step in PublishStep),
)
"""Outcomes are recorded by deletions and by removals."""
HANDOVER_EVENTS: Final = (
    "records are produced",
    "checkpoints are written",
    "a clean election",
    "an unclean election",
    "kafka-delete-records",
    "a segment is rolled",
    "a topic is deleted",
    "a process is killed",
    "a process stalls",
    "a handover is carried on",
    "a handover is undone",
    "remote storage is switched on by hand",
    "a topic's retention is changed",
)
"""During each step of a handover."""
SUBJECTS: Final = (
    *(focus for focus in FOCUSES.options if isinstance(focus, Focus)),
    PUBLICATION,
    HAND_OVERS,
    *MISTAKES,
    HISTORIES,
    COMPACTION,
)


def missing(tally: Tally) -> list[str]:
    """What never happened and should have."""
    wanted = [f"event: {event}" for event in (*BROKER_EVENTS, *OTHER_EVENTS)]
    wanted += [f"killed after: {step}" for step in CRASH_POINTS]
    wanted += [f"slow: {label}" for focus in SUBJECTS for label in focus.slow]
    wanted += [f"pair: {event} after {step}" for event in BROKER_EVENTS for step in CopyStep]
    wanted += [f"killed during: {step}" for step in HandoverStep]
    wanted += [f"pair: {event} during {step}" for event in HANDOVER_EVENTS for step in HandoverStep]
    return [name for name in wanted if not tally.coverage[name]]


def report(versions: Mapping[str, Tally]) -> str:
    """Markdown: numbers of schedules by version, then events, crash points and pairs of all versions."""
    tally = Tally()
    lines = ["| sources | schedules | steps | failures | schedules a second of one core |", "|---|---|---|---|---|"]
    for name, one in versions.items():
        tally.add(one)
        lines.append(f"| `{name}` | {_numbers(one)} |")
    lines += [
        f"| all | {_numbers(tally)} |",
        "",
        "| event | times |",
        "|---|---|",
    ]
    lines += [f"| schedules about {one.name} | {tally.coverage[f'about: {one.name}']} |" for one in SUBJECTS]
    events = sorted(name for name in tally.coverage if name.startswith("event: "))
    lines += [f"| {name.removeprefix('event: ')} | {tally.coverage[name]} |" for name in events]
    lines += ["", "| killed after | times |", "|---|---|"]
    lines += [f"| {step} | {tally.coverage[f'killed after: {step}']} |" for step in CRASH_POINTS]
    lines += [
        "",
        f"| broker event, last step of the copy: | {' | '.join(CopyStep)} |",
        "|---|" + "---|" * len(CopyStep),
    ]
    for event in BROKER_EVENTS:
        counts = [str(tally.coverage[f"pair: {event} after {step}"]) for step in CopyStep]
        lines.append(f"| {event} | {' | '.join(counts)} |")
    lines += [
        "",
        f"| event, during a handover's step: | {' | '.join(HandoverStep)} |",
        "|---|" + "---|" * len(HandoverStep),
    ]
    killed = [str(tally.coverage[f"killed during: {step}"]) for step in HandoverStep]
    lines.append(f"| its process is killed | {' | '.join(killed)} |")
    for event in HANDOVER_EVENTS:
        counts = [str(tally.coverage[f"pair: {event} during {step}"]) for step in HandoverStep]
        lines.append(f"| {event} | {' | '.join(counts)} |")
    never = missing(tally)
    lines += ["", f"Never: {', '.join(never)}" if never else "Each event of these tables happened at least once."]
    return "\n".join(lines)


def _numbers(tally: Tally) -> str:
    rate = tally.schedules / tally.cpu_seconds if tally.cpu_seconds else 0
    return f"{tally.schedules} | {tally.steps} | {len(tally.failures)} | {rate:.1f}"
