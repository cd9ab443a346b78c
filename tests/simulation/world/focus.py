"""What a schedule is about. Some rules only matter where several rare things meet, shortly after each other: a half of
the seeds turn to one subject, in which what belongs together happens often, and some call may take its time, so that
the rest of the world gets ahead of whoever makes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.kernel.choices import Choices, Menu


@dataclass(frozen=True, slots=True)
class Focus:
    """One subject.

    `weights` are added to those of events, by the name of the method, and `tempers` are the least that a schedule has.
    `slow` are labels of calls: one of them is the schedule's slow point.
    """

    name: str
    weights: Mapping[str, int] = field(default_factory=dict)
    tempers: Mapping[str, int] = field(default_factory=dict)
    slow: tuple[str, ...] = ()
    most_held_steps: int = 24
    """For so long a call may take its time."""

    def weight(self, event: str, usual: int) -> int:
        return max(0, usual + self.weights.get(event, 0))

    def temper(self, name: str, drawn: int) -> int:
        return max(drawn, self.tempers.get(name, 0))

    def slow_point(self, choices: Choices) -> str:
        """Empty in a fifth of the schedules that are about something, and in all others."""
        if not self.slow or choices.number(5) == 0:
            return ""
        return self.slow[choices.number(len(self.slow))]


NOTHING: Final = Focus("nothing")
ELECTIONS: Final = Focus(
    "elections",
    {
        "elect_unclean": 36,
        "abandoned_copy_is_replaced": 30,
        "elect": 8,
        "checkpoint": 16,
        "restart_a_batch": 24,
        "roll": 6,
        "start_expire_run": -10,
        "owner_changes": -4,
        "retention_changes": -3,
    },
    {"brokers": 1, "kills": 3},
    ("source.open_segment", "work.claim", "source.scan", "work.record_outcome", "step verified"),
)
"""History is replaced while copies are planned, under way or started again."""
SIZES: Final = Focus(
    "sizes",
    {
        "elect": 20,
        "elect_unclean": 10,
        "lag": 8,
        "metadata_lags": 14,
        "delete_records_locally": 10,
        "log_start_rises_into_a_local_segment": 12,
        "old_leader_leads_in_stale_metadata": 12,
        "roll": 4,
        "retention_changes": 12,
        "start_expire_run": 8,
        "owner_changes": -4,
    },
    {"brokers": 1, "by_size": 1},
    ("source.scan", "deletions.save_plan"),
)
"""Retention by size, with limits that are close to what there is, among elections and stale cluster metadata."""
VERDICTS: Final = Focus(
    "verdicts",
    {
        "start_verification": 24,
        "fails": 12,
        "rots": 14,
        "retention_changes": 10,
        "start_expire_run": 20,
        "approve": -10,
        "start_copy_run": 8,
        "owner_changes": -4,
    },
    {"verifications": 1, "verdicts": 1, "by_size": 1, "stalls": 3},
    (
        "store.stat",
        "metadata.record_verification",
        "deletions.claim",
    ),
)
"""Segments are verified, copied again and deleted at once."""
AUDITS: Final = Focus(
    "audits",
    {
        "start_audit": 30,
        "approve": 30,
        "a_weekend_passes": 12,
        "appear": 16,
        "bucket_changes_hands": 16,
        "broker_tiers": 10,
        "broker_copies": 24,
        "start_copy_run": -12,
        "start_expire_run": -12,
        "_late_write": 10,
        "owner_changes": -3,
    },
    {"audits": 1},
    ("removals.claim", "removals.save_plan", "store.head"),
)
"""Orphan objects appear and are removed, while brokers write into the same bucket and the bucket changes hands."""
OWNERS: Final = Focus(
    "owners",
    {
        "owner_changes": 24,
        "bucket_changes_hands": 8,
        "pause": 6,
        "retention_changes": 12,
        "start_expire_run": 20,
        "approve": 24,
        "broker_tiers": 4,
    },
    {"quotas": 1},
    ("quota.take request", "quota.take", "deletions.claim", "metadata.update_segment", "registry.owner"),
)
"""Topics and the bucket change hands while something is sent or deleted."""
POWER: Final = Focus(
    "power",
    {"power_fails": 120, "start_expire_run": 10, "truncate": 6, "approve": 10, "retention_changes": 6},
    {"loses_power": 1},
    ("work.record_outcome", "metadata.advance_deletion", "step finished", "store.delete", "step log start raised"),
)
"""The database's host loses power between two commits."""
FAULTS: Final = Focus(
    "faults",
    {"restart_a_batch": 12, "start_copy_run": 6},
    {"database": 8, "store": 3, "kills": 1},
    ("metadata.update_segment", "metadata.advance_deletion", "store.delete"),
)
"""Answers of the database and of the store are lost, all the time."""
PUBLICATION: Final = Focus(
    "publication",
    {
        "publish": 50,
        "late_record": 6,
        "owner_hands_over": 30,
        "owner_changes": 4,
        "local_retention": 6,
        "delete_records_locally": 16,
        "truncate": 20,
        "start_copy_run": -4,
        "restart_a_batch": -12,
        "start_expire_run": 10,
        "approve": 10,
        "fails": 3,
        "broker_tiers": -100,
        "broker_copies": -100,
        "delete_topic": -2,
    },
    {"publishes": 1, "verifications": 1, "verdicts": 1, "source": 3, "kills": 1, "stalls": 1, "store_refuses": 1},
    ("step record written down", "metadata_topic.append", "publications.claim", "publications.advance"),
)
"""Topics are published by command, again and again, by several at once."""
HAND_OVERS: Final = Focus(
    "hand-overs",
    {
        "hand_over": 40,
        "approve_handover": 14,
        "undo_handover": 3,
        "late_record": 4,
        "switch_by_hand": 2,
        "configs_change": 4,
        "produce": 10,
        "checkpoint": 6,
        "leader_copies": 8,
        "leader_expires": 6,
        "disks_are_cleared": 8,
        "publish": 1,
        "start_expire_run": -10,
        "restart_a_batch": -8,
        "owner_changes": -100,
        "broker_tiers": -100,
        "broker_copies": -100,
        "broker_expires": -100,
        "delete_topic": -2,
        "a_weekend_passes": -100,
    },
    {"publishes": 1, "hands_over": 1, "source": 1, "kills": 1, "stalls": 1},
    (
        "metadata.update_segment",
        "step record written down",
        "metadata_topic.append",
        "brokers.alter_topic_configs",
        "handovers.advance",
    ),
    most_held_steps=150,
)
"""Topics go to brokers that tier them from then on, while people change their minds and leaders change."""

_ANY_MISTAKE: Final = {
    "store_goes_away": 2,
    "store_comes_back": 4,
    "store_hides": 2,
    "migrates": 2,
    "settings_go_wrong": 1,
    "settings_are_mended": 4,
    "database_is_copied": 1,
    "copy_copies": 2,
    "copy_expires": 3,
    "copy_is_switched_off": 1,
    "takes_over": 4,
    "topic_is_made_again": 1,
    "metadata_goes_away": 2,
    "clock_goes_wrong": 1,
    "clock_is_mended": 5,
    "bucket_changes_hands": -100,
}
WRONG_PLACES: Final = Focus(
    "wrong places",
    {
        **_ANY_MISTAKE,
        "store_goes_away": 14,
        "store_goes_away_from_a_copy": 12,
        "store_comes_back": 16,
        "store_hides": 14,
        "failure_and_store_hides": 34,
        "new_copy_is_lost": 16,
        "failed_copy_is_replaced_and_lost": 20,
        "migrates": 10,
        "settings_go_wrong": 8,
        "settings_are_mended": 12,
        "start_verification": 14,
        "fails": 18,
        "start_copy_run": 8,
        "a_weekend_passes": 9,
        "approve": 12,
        "owner_changes": -100,
    },
    {"mistakes": 1, "verifications": 1, "verdicts": 1, "stalls": 1},
    ("store.put completes", "store.stat", "metadata.update_segment", "store.delete"),
)
"""Disks that are not mounted, settings of another place, and `migrate` at that moment."""
TWO_DATABASES: Final = Focus(
    "two databases",
    {
        **_ANY_MISTAKE,
        "database_is_copied": 12,
        "copy_copies": 20,
        "copy_expires": 20,
        "copy_is_told_to_expire": 4,
        "copy_is_switched_off": 3,
        "takes_over": 10,
        "backup": 10,
        "restore": 8,
        "approve": 16,
        "start_copy_run": 6,
        "owner_changes": -100,
    },
    {"mistakes": 1, "kills": 1, "stalls": 1},
    ("store.replace", "deletions.save_plan", "work.save_plan", "store.delete", "metadata.update_segment"),
)
"""A copy of the database goes on beside it, or it is an old one itself."""
NAMES_AND_CLOCKS: Final = Focus(
    "names and clocks",
    {
        **_ANY_MISTAKE,
        "topic_is_made_again": 8,
        "metadata_goes_away": 12,
        "clock_goes_wrong": 8,
        "clock_is_mended": 12,
        "clock_jumps_before_a_run": 6,
        "copiers_die_under_a_clock_that_is_ahead": 40,
        "all_retentions_are_shortened": 10,
        "retention_is_mended_in_a_pause": 24,
        "deletion_is_paused": 24,
        "file_is_extended": 8,
        "retention_changes": 8,
        "start_expire_run": 16,
        "start_copy_run": 4,
        "approve": 14,
        "owner_changes": -100,
    },
    {"mistakes": 1, "two_topics": 1, "quotas": 1},
    ("deletions.claim", "deletions.save_plan", "quota.take request", "work.claim"),
    most_held_steps=60,
)
"""Names that two topics have had, a clock that is wrong, settings that were mended too late."""
MISTAKES: Final = (WRONG_PLACES, TWO_DATABASES, NAMES_AND_CLOCKS)

HISTORIES: Final = Focus(
    "histories",
    {
        "another_history": 20,
        "decided_meanwhile": 50,
        "recorded_late": 60,
        "elect": 6,
        "checkpoint": 10,
        "local_retention": 4,
        "follow": 40,
        "skip_what_is_named": 8,
        "restart_a_batch": 10,
        "start_copy_run": 2,
        "start_audit": -100,
        "appear": -100,
        "approve": -8,
        "delete_without_asking": -100,
        "start_expire_run": -8,
        "a_weekend_passes": -100,
        "delete_topic": -100,
        "broker_tiers": -100,
        "owner_changes": -4,
        "retention_changes": -3,
    },
    {"brokers": 1, "decides": 1},
    ("metadata.follow_source", "metadata.update_segment", "metadata.record_divergence", "source.scan"),
    most_held_steps=150,
)
"""Sources go on with other histories, pass the archive's end, and a person decides to follow them, once and again."""

COMPACTION: Final = Focus(
    "compaction",
    {
        "compaction_is_switched": 20,
        "log_cleaner_runs": 60,
        "skip_what_is_named": 50,
        "whole_replica_leads": 50,
        "produce": 20,
        "checkpoint": 24,
        "elect": 14,
        "lag": 4,
        "roll": 8,
        "start_copy_run": 16,
        "restart_a_batch": 14,
        "start_expire_run": -6,
        "elect_unclean": -100,
        "delete_topic": -100,
        "broker_tiers": -100,
        "owner_changes": -4,
        "retention_changes": -3,
    },
    {"brokers": 1, "decides": 1},
    ("metadata.skip_offsets", "metadata.update_segment", "source.scan", "source.open_segment", "work.claim"),
    most_held_steps=40,
)
"""Topics are compacted for a while, by each broker for itself, before their segments are copied."""

FOCUSES: Final = Menu(
    (NOTHING, 23), *((focus, 11) for focus in (ELECTIONS, SIZES, VERDICTS, AUDITS, OWNERS, POWER, FAULTS))
)
_KINDS: Final = 12


def drawn_focus(choices: Choices) -> Focus:
    """A few kinds of schedules are a seed's nature: all others are what they would be without them."""
    usual = choices.pick(FOCUSES)
    assert isinstance(usual, Focus)
    natures = {0: PUBLICATION, 1: HAND_OVERS, 2: HAND_OVERS, 6: HISTORIES, 7: COMPACTION}
    natures |= dict(enumerate(MISTAKES, start=3))
    return natures.get(choices.nature(_KINDS), usual)
