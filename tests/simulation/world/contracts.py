"""Contracts whose calls are scheduling points: what kind of call each method is, which decides how it may fail."""

from typing import Final

READ: Final = "sql read"
WRITE: Final = "sql write"

METADATA: Final = {
    "add_segment": WRITE,
    "update_segment": WRITE,
    "advance_deletion": WRITE,
    "raise_log_start": WRITE,
    "merge_leader_epochs": WRITE,
    "skip_offsets": WRITE,
    "record_divergence": WRITE,
    "follow_source": WRITE,
    "divergences": READ,
    "is_continued": READ,
    "forget_tombstones": WRITE,
    "skipped_offsets": READ,
    "retention_state": READ,
    "segment": READ,
    "list_segments": READ,
    "partitions": READ,
    "highest_offset_for_epoch": READ,
    "highest_copied_offset": READ,
    "stopped_reason": READ,
    "record_verdict": WRITE,
    "record_verification": WRITE,
    "quality_results": READ,
    "segments_of_run": READ,
    "unverified_segments": READ,
}
SELECTED: Final = dict.fromkeys(
    (
        "segments_under_way",
        "segments_with_ids",
        "finished_from",
        "finished_ids",
        "counters_agree",
        "finished_before",
        "oldest_segments",
        "finished_with_verdicts",
    ),
    READ,
)
WORK: Final = {
    "save_plan": WRITE,
    "claim": WRITE,
    "waits_longer": READ,
    "renew": WRITE,
    "release": WRITE,
    "holder": READ,
    "leases_ahead": READ,
    "live_leases": READ,
    "remaining": READ,
    "record_outcome": WRITE,
    "record_left_reason": WRITE,
    "could_claim": READ,
    "has_work": READ,
    "report_progress": WRITE,
    "paused_topics": READ,
    "pool_size": READ,
    "live_batches": READ,
    "running_batches": READ,
    "pause": WRITE,
    "resume": WRITE,
}
DELETIONS: Final = {
    "save_plan": WRITE,
    "run": READ,
    "plan": READ,
    "totals": READ,
    "record_limit_check": WRITE,
    "approve": WRITE,
    "withdraw": WRITE,
    "claim": WRITE,
    "remaining": READ,
    "record_outcomes": WRITE,
    "could_claim": READ,
    "has_work": READ,
}
FAILED_COPIES: Final = {"all": READ, "failed_by": READ, "note_losses": WRITE, "give_up": WRITE}
AUDITS: Final = {"memory": READ, "record": WRITE, "audit": READ, "seen_by": READ, "acted": WRITE, "forget": WRITE}
REMOVALS: Final = {
    "save_plan": WRITE,
    "run": READ,
    "items": READ,
    "totals": READ,
    "record_limit_check": WRITE,
    "approve": WRITE,
    "withdraw": WRITE,
    "claim": WRITE,
    "remaining": READ,
    "mark_for_deletion": WRITE,
    "record_outcomes": WRITE,
    "could_claim": READ,
    "has_work": READ,
    "forget": WRITE,
}
SEGMENT_FACTS: Final = {"topics": READ, "leased_partitions": READ, "split": READ}
GENERATIONS: Final = {
    "accepted": READ,
    "propose": WRITE,
    "propose_over": WRITE,
    "settle": WRITE,
    "record_conditional_writes": WRITE,
}
REGISTRY: Final = {"owner": READ, "recorded_name": READ, "names_in_use": READ, "set_owner": WRITE}
SOURCE: Final = {"scan": "source", "replica": "source", "open_segment": "source"}
OPENED: Final = {"check": "source", "recheck": "source"}
PUBLICATIONS: Final = {
    "claim": WRITE,
    "journal": READ,
    "begin": WRITE,
    "intend": WRITE,
    "advance": WRITE,
    "forget_pending": WRITE,
    "totals": READ,
}
HANDOVERS: Final = {
    "begin": WRITE,
    "handover": READ,
    "latest": READ,
    "open_handovers": READ,
    "drive": WRITE,
    "renew": WRITE,
    "release": WRITE,
    "advance": WRITE,
    "set_state": WRITE,
    "save_overrides": WRITE,
    "overrides": READ,
    "overrides_restored": WRITE,
    "save_seed": WRITE,
    "seed": READ,
    "note_compared": WRITE,
    "claim": WRITE,
    "propose": WRITE,
    "approve": WRITE,
    "record_checks": WRITE,
    "checks": READ,
}
