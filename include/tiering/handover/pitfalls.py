"""All checks of a handover, and the pitfalls that they cover.

A pitfall is a mistake that is possible when segments are published for brokers. A `Pitfall` names the checks that find
the mistake. If no check finds it reliably, the `Pitfall` says why, even if it names checks that find it in some
deployments.
`docs/handover-checks.md` is generated from the checks and the pitfalls.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.handover.checks import NamedCheck
from include.tiering.handover.cluster_checks import CLUSTER_CHECKS
from include.tiering.handover.retention_checks import RETENTION_CHECKS
from include.tiering.handover.rules import STEPS
from include.tiering.handover.seed_checks import HISTORY_CHECKS, SEED_CHECKS, WATCH_CHECKS

CHECKS: Final[tuple[NamedCheck, ...]] = (
    *CLUSTER_CHECKS,
    *SEED_CHECKS,
    *RETENTION_CHECKS,
    *HISTORY_CHECKS,
    *WATCH_CHECKS,
)


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One pitfall. The checks in `checks` run before the switch, those in `watched` after it.

    `why_none` says why no check finds the pitfall reliably, and is empty if one does.
    """

    what: str
    consequence: str
    checks: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    why_none: str = ""


PITFALLS: Final = (
    Pitfall(
        "The first seeded offset lies above the broker's log start, or only STARTED was published of a segment",
        "the broker raises its log start and deletes all records below",
        ("seed-begins-at-log-start", "nothing-is-published-twice"),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "There is a gap between seeded segments",
        "the broker treats the gap as tiered and deletes the only copy of its records",
        ("seed-has-no-gap",),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "FINISHED is published before the objects are durable, or objects are missing",
        "the broker deletes the only complete copy, and reads fail",
        ("seed-passed-the-gate",),
        ("latest-tiered-covers-seed",),
    ),
    Pitfall(
        "A segment's metadata has wrong leader epochs or offsets",
        "brokers do not find, count or expire the records",
        ("epochs-are-the-leaders", "seed-passed-the-gate"),
    ),
    Pitfall(
        "A segment has the leader epochs of a follower, or epochs from before an unclean election",
        "brokers do not find, count or expire the records, and upload overlapping segments",
        ("history-is-one", "leader-is-read", "epochs-are-the-leaders", "nothing-changed-since"),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "A segment lists epochs without a record", "brokers keep needless lookup entries", ("epochs-are-the-leaders",)
    ),
    Pitfall(
        "A segment ends at or above the high watermark or the last stable offset",
        "a leader change may truncate its records; the segment fails the brokers' lineage test",
        ("bounds-are-exact", "seed-is-stable", "seed-is-flushed"),
    ),
    Pitfall(
        "retention.bytes is limited on a broker without the fix of KAFKA-20732",
        "the broker counts local and remote copies, and deletes records within retention on both tiers",
        ("retention-bytes-is-guarded",),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "KAFKA-20732 is a race: 3 of 10 partitions lost records on 4.3.1, 3 of 10 on 3.9.2, none of 10 on 4.4.0",
        "a handover without loss does not prove that the next one loses nothing",
        ("retention-bytes-is-guarded", "retention-bytes-can-come-back", "restarts-are-harmless"),
        ("earliest-is-unchanged", "retention-bytes-is-safe"),
    ),
    Pitfall(
        "A segment is past retention already",
        "the broker's first expiration run deletes the segment and raises the log start",
        ("retention-ms-is-guarded", "seed-is-within-retention"),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "A segment's metadata has a wrong size or largest timestamp",
        "the segment expires too early or too late, or reads of it end early",
        ("seed-passed-the-gate", "timestamps-are-real"),
    ),
    Pitfall(
        "A range of offsets is seeded a second time",
        "the older segment is hidden and never expires",
        ("nothing-is-published-twice",),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "The platform still copies when the broker begins to copy after the switch",
        "offsets are in the store twice",
        ("topic-is-fenced-off", "no-copier-is-left", "brokers-do-not-tier-it"),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "A transactional producer writes the metadata",
        "its transaction markers occupy offsets that brokers wait for",
        why_none="the publisher sets no transactional.id and no setting can; a test reads its configuration",
    ),
    Pitfall(
        "A record in __remote_log_metadata is malformed",
        "every broker that reads the record's partition stops at this record, after restarts too",
        ("metadata-topic-is-readable",),
        ("latest-tiered-covers-seed",),
    ),
    Pitfall(
        "The retention of __remote_log_metadata is limited",
        "STARTED expires before FINISHED is written: the objects stay without metadata",
        ("metadata-topic-exists", "metadata-topic-keeps-all"),
    ),
    Pitfall(
        "A producer snapshot is missing or damaged",
        "a new replica cannot build its state and stays outside the ISR",
        ("seed-passed-the-gate",),
    ),
    Pitfall(
        "The leader epoch object of a segment does not reach back to the beginning of the log",
        "a new replica cannot reach older remote records",
        ("seed-passed-the-gate",),
    ),
    Pitfall(
        "A segment with aborted transactions has no transaction index, or the flag in its metadata is wrong",
        "read_committed consumers get aborted records",
        ("seed-passed-the-gate",),
    ),
    Pitfall("Indexes have trailing empty entries", "brokers reject or fully search them", ("seed-passed-the-gate",)),
    Pitfall(
        "The topic is deleted, or created again, before the switch",
        "no broker deletes the seeded objects, so the platform has to delete them",
        ("topic-is-the-same",),
    ),
    Pitfall(
        "The storage manager expects custom metadata",
        "the storage manager cannot read segments without custom metadata",
        ("custom-metadata-is-the-plugins", "layout-is-the-brokers"),
    ),
    Pitfall(
        "Brokers have different storage directories, or a broker deletes its storage when it stops",
        "segments are missing on one broker, or all segments are deleted",
        ("store-is-the-brokers",),
        ("latest-tiered-covers-seed",),
        "brokers may not show rsm.config.*: the check then leaves a note, and records that became remote only are"
        " consumed and compared before more local segments are deleted",
    ),
    Pitfall("A segment spans more than 2^31-1 offsets", "brokers cannot represent them", ("segments-fit",)),
)


_OUTCOMES: Final = """\
A check passes if the condition in its row holds. Otherwise it refuses, which stops the handover, or waits, if the
condition may become true without intervention. Checks may also leave notes, which inform a person and stop nothing.
Four checks never refuse or wait, and only leave notes: `seed-reaches-active-segment`, `seed-is-within-retention`,
`restarts-are-harmless` and `nothing-is-uploaded-again`."""
_MEASURED: Final = """
## What is measured

`disks-have-room` needs the rate at which producers append, and measures it from the segments in the leader's log. Of
the last ten segments (including the active one), the first one with a timestamp is the reference. The rate is the bytes
of the segments after the reference, divided by the time from the largest timestamp of the reference until now. So a
burst, such as a backfill or a replay, does not determine the rate for long: the longer nothing follows the burst, the
less the burst counts. Timestamps are those of the records. If the clocks of producers are ahead, the largest timestamp
is used in place of the present time. Without timestamps, if no segment follows the reference, or if that time is 0, the
rate of the partition counts as 0. The rates of all partitions of the topic that a broker leads are added up.
"""


def checks_page(note: str) -> str:
    """Return the page `docs/handover-checks.md`. `note` is a paragraph that says that the page is generated."""
    lines = [
        "# What a handover checks",
        "",
        note,
        "",
        "## What can go wrong, and which check finds it",
        "",
        "| pitfall | consequence | checked before the switch | checked after it | why not checked |",
        "|---|---|---|---|---|",
    ]
    for pitfall in PITFALLS:
        before = ", ".join(f"`{name}`" for name in pitfall.checks)
        after = ", ".join(f"`{name}`" for name in pitfall.watched)
        lines.append(f"| {pitfall.what} | {pitfall.consequence} | {before} | {after} | {pitfall.why_none} |")
    lines += ["", "## Every check", "", _OUTCOMES, "", "| check | passes if | at the steps |", "|---|---|---|"]
    for check in CHECKS:
        steps = ", ".join(step for step in STEPS if step in check.steps)
        lines.append(f"| `{check.name}` | {check.promise} | {steps} |")
    return "\n".join(lines) + "\n" + _MEASURED
