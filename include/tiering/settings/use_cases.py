"""Settings of single use cases: audits, verdicts and their verification, handovers, data docs, sizes and prices.

Settings of audits, verdicts, verification and handovers may be changed while jobs run.
"""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from include.tiering.model.sizes import PriceTable
from include.tiering.settings.fields import (
    MOST_LONG,
    DynamicSection,
    Loosens,
    Section,
    check_absolute_path,
    check_price,
    operational,
)

_DAY_MS: Final = 24 * 60 * 60 * 1000


class AuditSettings(DynamicSection):
    """What audits do not report."""

    prefix = "tiering.audit"

    min_age_ms: int = operational(
        _DAY_MS,
        "Objects without metadata and open uploads that are younger are neither reported nor removed by an audit; a "
        "complete copy is reported at any age. This is only an additional safeguard: a copy in progress is known by "
        "its metadata at any age.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )


class VerdictSettings(DynamicSection):
    """How long a verdict is valid."""

    prefix = "tiering.verdict"

    max_age_ms: int = operational(
        90 * _DAY_MS,
        "A segment that passed longer ago is still served, but not counted as safe until it is verified again. "
        "`tiering_quality` verifies it earlier, after nine tenths of this time.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
    )


class VerifySettings(DynamicSection):
    """What a scheduled run of `tiering_quality` reads by default, and limits of every verification."""

    prefix = "tiering.verify"

    share: float = operational(
        0.02,
        "Share of all remote bytes that is verified in each period regardless of verdicts, a different part each time, "
        "so that every segment is verified eventually. 0: only segments that are due.",
        unit="share",
        at_least=0,
        at_most=1,
    )
    period_ms: int = operational(
        _DAY_MS,
        "Length of a period of `tiering.verify.share`: the time between two runs of `tiering_quality`.",
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
        "How many segments of a partition, and not all of it, may lack objects in the store for a verification to fail "
        "them as lost, including those that failed so before and are neither replaced nor given up. If more segments "
        "lack objects, or all that it verified, it stops and stores no verdict of them, because it may be the wrong "
        "store. `./tiering verify --missing-is-real` lets a person decide.",
        unit="segments",
        at_least=0,
        at_most=1_000_000,
        loosens=Loosens.UPWARDS,
    )
    max_missing_total: int = operational(
        20,
        "As `tiering.verify.max.missing.segments`, for the segments of all partitions together.",
        unit="segments",
        at_least=0,
        at_most=1_000_000_000,
        loosens=Loosens.UPWARDS,
    )
    tasks: int = operational(
        8,
        "Spark tasks among which a run of `tiering_quality` divides its segments; Spark's cores limit how many run at "
        "once.",
        unit="tasks",
        at_least=1,
        at_most=10_000,
    )


class HandoverSettings(DynamicSection):
    """How long a handover may override a topic's retention, and how long it waits for brokers."""

    prefix = "tiering.handover"

    hold_hours: int = operational(
        24,
        "For this time the brokers' disks must have space for what producers write, before a handover begins: while it "
        "lasts, no record of the topic is deleted.",
        unit="hours",
        at_least=0,
        at_most=10_000,
    )
    free_bytes: int = operational(
        -1,
        "Free space in the fullest log directory of each broker, if this host cannot read it. -1: read it from the "
        "directories in `log_dirs`.",
        unit="bytes",
        at_least=-1,
        at_most=MOST_LONG,
    )
    watch_seconds: int = operational(
        300,
        "How long a run waits for brokers: until they have flushed segments that they just rolled, show a changed "
        "config, or have read the published records.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    settle_seconds: int = operational(
        600,
        "How long brokers may take to delete segments after a step of lowering local retention, before the next step: "
        "more than `log.retention.check.interval.ms`, which is 5 minutes by default.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    verify_deep_enable: bool = operational(
        True,
        "Whether every byte that is handed over must have passed a deep verification: segments that have not are read "
        "before the approval, under the fetch quota. Off: a verification of checksums, indexes, beginnings and ends is "
        "enough.",
    )
    local_steps: int = operational(
        8,
        "In how many steps local retention is lowered; after each, records that are remote only are read and compared.",
        unit="steps",
        at_least=1,
        at_most=1_000,
    )


class DataDocsSettings(Section):
    """Where the pages are stored, and for how long."""

    path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the data docs: a page and the stored results of each run that verified segments. "
        "Airflow's workers write it, its API server reads it. Unset: `data-docs` in Airflow's `[tiering] work_dir`.",
    )
    keep_runs: int = Field(default=200, ge=1, le=100_000, description="Runs of each DAG whose pages are kept.")
    keep_days: int = Field(default=90, ge=1, le=36_500, description="Days after which a run's page is removed.")


Price = Annotated[str, BeforeValidator(check_price)]


class SizesSettings(Section):
    """The history of sizes."""

    history_path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the history of sizes (Parquet) that Airflow's workers see. Unset: `sizes-history` "
        "next to a SQLite database, otherwise in the directory of the size run.",
    )
    history_days: int = Field(
        default=400, ge=1, le=36_500, description="Days of the history of sizes to keep; a size run deletes older ones."
    )


class PricesSettings(Section):
    """Prices of remote storage, for estimates of costs."""

    currency: str = Field(default="USD", pattern=r"^[A-Za-z]{1,10}$", description="Name of the currency of all prices.")
    gib_month: Price | None = Field(
        default=None, description="Price of 1 GiB for a month. Unset: storage is not estimated."
    )
    put_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that write. Unset: they are not estimated."
    )
    get_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that read. Unset: they are not estimated."
    )
    delete_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that delete. Unset: they are not estimated."
    )

    def table(self) -> PriceTable:
        return PriceTable(
            self.currency,
            *(
                None if price is None else Decimal(price)
                for price in (self.gib_month, self.put_requests, self.get_requests, self.delete_requests)
            ),
        )
