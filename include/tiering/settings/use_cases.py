"""Settings of single use cases: audits, verdicts and their verification, handovers, data docs, sizes and prices.

Those of audits, verdicts and handovers may be changed while jobs run.
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
    """What audits leave alone."""

    prefix = "tiering.audit"

    min_age_ms: int = operational(
        _DAY_MS,
        "Objects without metadata and open uploads that are younger are neither reported nor removed by an audit; a "
        "complete copy is reported at any age. A second line only: a copy under way is known by its metadata, whatever "
        "its age.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )


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
    believes.
    """

    prefix = "tiering.verify"

    share: float = operational(
        0.02,
        "Share of all remote bytes that is verified in each period, whatever its verdicts say: another part each time, "
        "so that every segment is verified in time. 0: only what is due.",
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


class HandoverSettings(DynamicSection):
    """How long a handover may hold a topic's retention back, and how patiently it asks brokers."""

    prefix = "tiering.handover"

    hold_hours: int = operational(
        24,
        "For so long the brokers' disks must be able to take what producers bring before a handover begins: while it "
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


class DataDocsSettings(Section):
    """Where the pages are, and how long."""

    path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the data docs: a page and the stored results of each run that verified segments. "
        "Airflow's workers write it, its API server reads it. Unset: `data-docs` in Airflow's `[tiering] work_dir`.",
    )
    keep_runs: int = Field(default=200, ge=1, le=100_000, description="Runs of each DAG whose pages are kept.")
    keep_days: int = Field(default=90, ge=1, le=36_500, description="Days after which a run's page is removed.")


Price = Annotated[str, BeforeValidator(check_price)]


class SizesSettings(Section):
    """What the size run keeps."""

    history_path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the history of sizes (Parquet) that Airflow's workers see. Unset: `sizes-history` "
        "beside a SQLite database, else in the directory of the size run.",
    )
    history_days: int = Field(
        default=400, ge=1, le=36_500, description="Days of that history to keep; older ones are deleted by a size run."
    )


class PricesSettings(Section):
    """What remote storage costs, for estimates."""

    currency: str = Field(default="USD", pattern=r"^[A-Za-z]{1,10}$", description="Name of the currency of all prices.")
    gib_month: Price | None = Field(
        default=None, description="Price of one GiB for a month. Unset: storage is not estimated."
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
