"""Settings of verdicts: how long they hold, and what is read to renew them. All may be changed while jobs run."""

from typing import Final

from include.tiering.settings.section import MOST_LONG, DynamicSection, Loosens, operational

_DAY_MS: Final = 24 * 60 * 60 * 1000


class VerdictSettings(DynamicSection):
    """How long a verdict holds."""

    prefix = "tiering.verdict"

    max_age_ms: int = operational(
        90 * _DAY_MS,
        "A segment that passed longer ago is served and no longer counted as safe, until it is verified again. "
        "`tiering_quality` does that before, when nine tenths of the time are over.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
    )


class VerifySettings(DynamicSection):
    """What a scheduled run of `tiering_quality` reads, if its form does not say otherwise, and what any verification
    believes."""

    prefix = "tiering.verify"

    share: float = operational(
        0.02,
        "Share of all remote bytes that is verified in each period, whatever its verdicts say: another part each time, "
        "so that every segment has its turn. 0: only what is due.",
        unit="share",
        at_least=0,
        at_most=1,
    )
    period_ms: int = operational(
        _DAY_MS,
        "Length of such a period: the time between two runs of `tiering_quality`.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
    )
    max_bytes: int = operational(
        1_099_511_627_776,
        "Most bytes that a run of `tiering_quality` plans to read; the next run takes the rest.",
        unit="bytes",
        at_least=1,
        at_most=MOST_LONG,
    )
    max_missing_segments: int = operational(
        3,
        "So many segments of one partition, and not all of it, may lack objects in the store for a verification to "
        "take them for lost, those included that failed for it before and are neither replaced nor given up. Where "
        "more do, or everything that it looked at, it stops and stores no verdict of them: the store is not the one "
        "that it seems to be. `./tiering verify --missing-is-real` asks a person instead.",
        unit="segments",
        at_least=0,
        at_most=1_000_000,
        loosens=Loosens.UPWARDS,
    )
    max_missing_total: int = operational(
        20,
        "The same for the segments of all partitions together.",
        unit="segments",
        at_least=0,
        at_most=1_000_000_000,
        loosens=Loosens.UPWARDS,
    )
    tasks: int = operational(
        8,
        "Spark tasks among which such a run spreads its segments; Spark's cores decide how many run at once.",
        unit="tasks",
        at_least=1,
        at_most=10_000,
    )
