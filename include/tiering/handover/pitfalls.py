"""All checks of a handover, and the pitfalls that they cover.

A pitfall is what can go wrong when segments are published for brokers. It names the checks that find it, or says why no
check can. `docs/handover-checks.md` is generated from both.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.handover.checks import NamedCheck
from include.tiering.handover.cluster_checks import CLUSTER_CHECKS
from include.tiering.handover.rules import STEPS
from include.tiering.handover.seed_checks import HISTORY_CHECKS, SEED_CHECKS, WATCH_CHECKS

CHECKS: Final[tuple[NamedCheck, ...]] = (*CLUSTER_CHECKS, *SEED_CHECKS, *HISTORY_CHECKS, *WATCH_CHECKS)


@dataclass(frozen=True, slots=True)
class Pitfall:
    """`checks` run before the switch, `watched` after it. Without either, `why_none` says why no check can find it."""

    what: str
    consequence: str
    checks: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    why_none: str = ""


PITFALLS: Final = (
    Pitfall(
        "The first seeded offset lies above the broker's log start, or only STARTED was published of a segment",
        "the broker raises its log start and deletes what lies below",
        ("seed-begins-at-log-start", "nothing-is-published-twice"),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "A gap between seeded segments",
        "the broker treats it as tiered and deletes the only copy",
        ("seed-has-no-gap",),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "FINISHED is published before the objects are durable, or objects are missing",
        "the same, and reads fail",
        ("seed-passed-the-gate",),
        ("latest-tiered-covers-seed",),
    ),
    Pitfall(
        "Wrong leader epochs or offsets",
        "records are not found, not counted and not expired",
        ("epochs-are-the-leaders", "seed-passed-the-gate"),
    ),
    Pitfall(
        "Leader epochs of a follower, or from before an unclean election",
        "as above, and an overlap is uploaded",
        ("history-is-one", "leader-is-read", "epochs-are-the-leaders", "nothing-changed-since"),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "Epochs without a record are listed", "a needless entry in the brokers' lookup", ("epochs-are-the-leaders",)
    ),
    Pitfall(
        "Segments above the high watermark or the last stable offset",
        "a leader change may truncate them; they fail the brokers' lineage test",
        ("bounds-are-exact", "seed-is-stable", "seed-is-flushed"),
    ),
    Pitfall(
        "Limited retention.bytes on a broker without the fix of KAFKA-20732",
        "local and remote copies are both counted, records within retention are deleted on both tiers",
        ("retention-bytes-is-guarded",),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "The same as a race: 3 of 10 partitions on 4.3.1 and on 3.9.2, none of 10 on 4.4.0",
        "a successful run proves nothing",
        ("retention-bytes-is-guarded", "restarts-are-harmless"),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "Segments that are past retention already",
        "deleted in the first expiration run, log start raised",
        ("retention-ms-is-guarded", "seed-is-within-retention"),
        ("earliest-is-unchanged",),
    ),
    Pitfall(
        "Wrong size or largest timestamp",
        "expires too early or too late; reads end early",
        ("seed-passed-the-gate", "timestamps-are-real"),
    ),
    Pitfall(
        "A range is seeded a second time",
        "the older id is hidden and never expires",
        ("nothing-is-published-twice",),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "Racing with the broker's own copies after the switch",
        "duplicates",
        ("topic-is-fenced-off", "no-copier-is-left", "brokers-do-not-tier-it"),
        ("nothing-is-uploaded-again",),
    ),
    Pitfall(
        "A transactional producer for metadata",
        "its markers occupy offsets that brokers wait for",
        why_none="the publisher sets no transactional.id and no setting can; a test reads its configuration",
    ),
    Pitfall(
        "A malformed record in __remote_log_metadata",
        "every broker that reads its partition stops, after restarts too",
        ("metadata-topic-is-readable",),
        ("latest-tiered-covers-seed",),
    ),
    Pitfall(
        "Limited retention of __remote_log_metadata",
        "STARTED expires before FINISHED: objects without metadata stay",
        ("metadata-topic-exists", "metadata-topic-keeps-all"),
    ),
    Pitfall(
        "A missing or damaged producer snapshot",
        "a new replica cannot build its state and stays outside the ISR",
        ("seed-passed-the-gate",),
    ),
    Pitfall(
        "A leader epoch object that does not reach back to the beginning",
        "older remote records are out of reach on a new replica",
        ("seed-passed-the-gate",),
    ),
    Pitfall(
        "No transaction index although transactions were aborted, or a wrong flag about it",
        "read_committed consumers get aborted records",
        ("seed-passed-the-gate",),
    ),
    Pitfall(
        "Indexes with trailing empty entries", "rejected as corrupt, or searched in full", ("seed-passed-the-gate",)
    ),
    Pitfall(
        "The topic is deleted, or created again, before the switch",
        "no broker deletes the seeded objects: the platform has to",
        ("topic-is-the-same",),
    ),
    Pitfall(
        "The storage manager expects custom metadata",
        "it cannot read segments without it",
        ("custom-metadata-is-the-plugins", "layout-is-the-brokers"),
    ),
    Pitfall(
        "Brokers with different storage directories, or one that deletes everything when it stops",
        "segments are missing on one broker, or everything is deleted",
        ("store-is-the-brokers",),
        ("latest-tiered-covers-seed",),
        "brokers show no values of rsm.config.*: the check then leaves a note, and records that became remote only"
        " are consumed and compared before more local segments are deleted",
    ),
    Pitfall("Segments above 2^31-1 bytes or offsets", "not representable for the brokers", ("segments-fit",)),
)


_MEASURED: Final = """
## What is measured

`disks-have-room` needs the rate of the producers. It measures the leader's own segments: the bytes after the first of
the last ten segments (the active one is among them), divided by the time from that first segment's last record until
now. So a burst, such as a backfill or a replay, does not determine the rate for long: the longer nothing follows it,
the less it counts. Right after a burst it does count. Times are those of the records. Without timestamps, or without a
rolled segment, the partition counts as 0. If the clocks of producers are ahead, the last timestamp is used as now.
Partitions are added up by the broker that leads them.
"""


def checks_page(note: str) -> str:
    """Return the page `docs/handover-checks.md`. `note` is a paragraph that says that it is generated."""
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
    lines += ["", "## Every check", "", "| check | it passes if | at |", "|---|---|---|"]
    for check in CHECKS:
        steps = ", ".join(step for step in STEPS if step in check.steps)
        lines.append(f"| `{check.name}` | {check.promise} | {steps} |")
    return "\n".join(lines) + "\n" + _MEASURED
