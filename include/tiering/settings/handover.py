"""Settings of hand-overs. All may be changed while one is on its way."""

from include.tiering.settings.section import MOST_LONG, DynamicSection, operational


class HandoverSettings(DynamicSection):
    """How long a hand-over may hold a topic's retention back, and how patiently it asks brokers."""

    prefix = "tiering.handover"

    hold_hours: int = operational(
        24,
        "For so long the brokers' disks must be able to take what producers bring before a hand-over begins: while it "
        "lasts, nothing of the topic is deleted.",
        unit="hours",
        at_least=0,
        at_most=10_000,
    )
    free_bytes: int = operational(
        -1,
        "Room in the fullest log directory of each broker, where it cannot be seen from here. -1: the log directories "
        "that `log_dirs` names are looked at.",
        unit="bytes",
        at_least=-1,
        at_most=MOST_LONG,
    )
    watch_seconds: int = operational(
        300,
        "How long one run waits for brokers: until they have flushed what they just rolled, show a changed config, or "
        "know what was published.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    settle_seconds: int = operational(
        600,
        "How long brokers may take to delete what a lower local retention lets go, before it is lowered further: more "
        "than `log.retention.check.interval.ms`, which is 5 minutes by default.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    verify_deep_enable: bool = operational(
        True,
        "Whether every byte that is handed over must have been read back from the store once and found right: what no "
        "deep look has passed yet is read before the approval, under the fetch quota. Off: its checksums, indexes, "
        "beginnings and ends are enough.",
    )
    local_steps: int = operational(
        8,
        "In how many steps local retention is lowered; after each, what is remote only is consumed and compared.",
        unit="steps",
        at_least=1,
        at_most=1_000,
    )
