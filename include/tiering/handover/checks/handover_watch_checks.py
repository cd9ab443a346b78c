"""Checks after the switch: the brokers know what was seeded, and nothing went."""

from collections.abc import Iterator
from typing import Final

from include.tiering.handover.checks.handover_check import CheckOutcome, NamedCheck, Remark
from include.tiering.handover.checks.handover_facts import HandoverFacts
from include.tiering.handover.handover import HandoverStep

_WATCH: Final = frozenset({HandoverStep.WATCH})
_LIMITING: Final = _WATCH | {HandoverStep.RETENTION}
"""A limited retention comes next."""
_AFTER: Final = _WATCH | {HandoverStep.LOCAL_RETENTION}


def _earliest(facts: HandoverFacts) -> Iterator[Remark]:
    for one in facts.partitions:
        frozen = facts.frozen.get(one.partition)
        if frozen is not None and one.offsets is not None and one.offsets.earliest > frozen.log_start_offset:
            yield Remark(
                f"the broker's log start rose from {frozen.log_start_offset} to {one.offsets.earliest}",
                "RECORDS ARE GONE FOR CONSUMERS, though their objects may still be in the store. Leave the guards as"
                " they are, look for 'due to' in the broker's log, and see docs/runbook.md. Once somebody has,"
                " --resume goes on from the log start of now",
                one.partition,
            )


def _covered(facts: HandoverFacts) -> Iterator[Remark]:
    for one in facts.partitions:
        frozen = facts.frozen.get(one.partition)
        if frozen is None or frozen.end_offset < frozen.start_offset:
            continue
        if one.offsets is None:
            yield Remark(one.problem or "its leader gives no offsets", "", one.partition, CheckOutcome.WAITING)
        elif frozen.end_offset >= one.offsets.earliest:
            found = one.offsets.latest_tiered
            # An unclean election may leave a leader whose log ends below what is remote.
            if found is None or found < min(frozen.end_offset, one.offsets.high_watermark - 1):
                yield Remark(
                    f"latest tiered is {'none' if found is None else found}, seeded up to {frozen.end_offset}",
                    "brokers replay __remote_log_metadata first; if it lasts, look for RemoteLogMetadata in their logs",
                    one.partition,
                    CheckOutcome.WAITING,
                )


def _known_to_brokers(facts: HandoverFacts) -> Iterator[Remark]:
    """Of what was switched on before we published it: brokers know how far they are once something is tiered."""
    for one in facts.partitions:
        if one.partition in facts.frozen or one.replica is None or one.offsets is None:
            continue
        if one.replica.active_base > one.offsets.earliest and one.offsets.latest_tiered is None:
            yield Remark("nothing is tiered yet", "the brokers upload it", one.partition, CheckOutcome.WAITING)


def _enabled(facts: HandoverFacts) -> Iterator[Remark]:
    if not facts.is_true("remote.storage.enable"):
        yield Remark(
            "remote.storage.enable is false again",
            "somebody took the switch back: see in docs/handover.md what that deletes. --undo puts the configs back;"
            " --resume after it begins again with what is published",
        )


def _no_second_copy(facts: HandoverFacts) -> Iterator[Remark]:
    for known in facts.metadata_topic.published if facts.metadata_topic is not None else ():
        frozen = facts.frozen.get(known.partition)
        if frozen is not None and not known.is_ours and known.start_offset <= frozen.end_offset:
            yield Remark(
                f"a broker uploaded offsets {known.start_offset}..{known.end_offset} again as {known.segment_id}",
                "both copies are whole; one is superfluous. Tell us: it should not happen",
                known.partition,
                CheckOutcome.NOTE,
            )


WATCH_CHECKS: Final = (
    NamedCheck("switch-is-on", "remote.storage.enable is true", _enabled, _LIMITING),
    NamedCheck("earliest-is-unchanged", "the log start is what it was before the switch", _earliest, _AFTER),
    NamedCheck("latest-tiered-covers-seed", "the leader knows everything that was seeded", _covered, _LIMITING),
    NamedCheck(
        "brokers-know-their-copies", "what the brokers upload themselves has begun", _known_to_brokers, _LIMITING
    ),
    NamedCheck("nothing-is-uploaded-again", "no broker copied a seeded offset", _no_second_copy, _WATCH),
)
