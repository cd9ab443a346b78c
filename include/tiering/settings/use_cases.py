"""Settings of single use cases: leaders, audits, verdicts, handovers, data docs, suites, sizes, prices and restores.

Settings of a `DynamicSection` may be changed while jobs run.
"""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from include.tiering.model.sizes import PriceTable
from include.tiering.settings.fields import (
    MOST_LONG,
    MOST_MAPPED,
    DynamicSection,
    Loosens,
    Section,
    check_absolute_path,
    check_price,
    operational,
)
from include.tiering.units import MIB

_DAY_MS: Final = 24 * 60 * 60 * 1000


class LeadersSettings(Section):
    """How segments are read from leaders whose brokers have no entry in `log_dirs`."""

    max_bytes_per_second: int = Field(
        default=100 * MIB,
        ge=MIB,
        le=MOST_LONG,
        description="Most bytes a second that a process reads from one broker. Every byte is read twice: once to find "
        "where segments begin and end, once to copy. The copy quota counts only what is sent.",
        json_schema_extra={"unit": "bytes a second"},
    )
    find_bytes: int = Field(
        default=16_384 * MIB,
        ge=MIB,
        le=MOST_LONG,
        description="How far the plan of a copy reads ahead: a run of `tiering_copy` finds segments until those that "
        "are not copied yet have this many bytes together.",
        json_schema_extra={"unit": "bytes"},
    )
    settle_ms: int = Field(
        default=60_000,
        ge=0,
        le=MOST_LONG,
        description="How long a segment must have been known before it is copied, if its topic is not replicated with "
        "a min.insync.replicas of 2 or more: until then its broker may not have written it to disk.",
        json_schema_extra={"unit": "milliseconds"},
    )
    spool_directory: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory on a disk of every worker, where segments are kept while they are checked and sent; "
        "their files have no names, and are gone when the process ends. Unset: the system's directory for temporary "
        "files.",
    )
    spool_max_bytes: int = Field(
        default=4_096 * MIB,
        ge=MIB,
        le=MOST_LONG,
        description="Most bytes of the spool of one process. A segment waits until it fits. While a later segment of "
        "its partition is in the spool, which waits for it, it is taken at once, above this number if need be.",
        json_schema_extra={"unit": "bytes"},
    )


class AuditSettings(DynamicSection):
    """What audits do not report, and which findings fail a run."""

    prefix = "tiering.audit"

    min_age_ms: int = operational(
        _DAY_MS,
        "An audit leaves out open uploads, unfinished copies, and objects of segment ids without metadata that are "
        "younger than this; it reports complete copies without metadata at any age. Copies in progress are in the "
        "metadata.",
        unit="milliseconds",
        at_least=0,
        at_most=MOST_LONG,
        loosens=Loosens.DOWNWARDS,
    )
    orphans_fail_enable: bool = operational(
        True,
        "Whether open orphan findings fail the task `alarm` of `tiering_audit`, and the run with it. Accepted findings "
        "do not, nor does a run that was asked to delete orphans. Findings about segments fail it in any case.",
    )


class VerdictSettings(DynamicSection):
    """How long a verdict is valid."""

    prefix = "tiering.verdict"

    max_age_ms: int = operational(
        90 * _DAY_MS,
        "A plan of verifications sets older PASSED verdicts to EXPIRED: the segments are still served, but not safe "
        "until they are verified again. `tiering_quality` verifies them after nine tenths of this time.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
    )


class VerifySettings(DynamicSection):
    """What a scheduled run of `tiering_quality` reads by default, and limits of every verification."""

    prefix = "tiering.verify"

    share: float = operational(
        0.02,
        "Approximate share of all remote bytes that is verified in each period whatever the verdicts are: a different "
        "part each time, so that every segment is verified eventually. 0: only segments that are due.",
        unit="share",
        at_least=0,
        at_most=1,
    )
    period_ms: int = operational(
        _DAY_MS,
        "Length of a period of `tiering.verify.share`. Set it to the time between two runs of `tiering_quality`.",
        unit="milliseconds",
        at_least=60_000,
        at_most=MOST_LONG,
    )
    max_bytes: int = operational(
        1_099_511_627_776,
        "Most bytes that a run of `tiering_quality` plans to read, but at least one segment; later runs take the rest.",
        unit="bytes",
        at_least=1,
        at_most=MOST_LONG,
    )
    max_missing_segments: int = operational(
        3,
        "Most segments of a partition that a verification marks as failed because they lack objects in the store. "
        "Segments that failed for this reason before count too, until they are replaced or given up. If more segments, "
        "a whole partition, or all of several verified segments lack objects, the verification stops without verdicts "
        "about them: it may be the wrong store. `./tiering verify --missing-is-real` lets a person decide.",
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
        "Spark tasks among which a batch of `tiering_quality` divides its segments; Spark's cores limit how many run "
        "at once.",
        unit="tasks",
        at_least=1,
        at_most=10_000,
    )
    max_batches: int = operational(
        4,
        "Most batches among which one run of `tiering_quality` divides its segments; their pool decides how many run "
        "at once. A small plan has fewer.",
        unit="batches",
        at_least=1,
        at_most=MOST_MAPPED,
    )


class HandoverSettings(DynamicSection):
    """How long a handover may override a topic's retention, and how long it waits for brokers."""

    prefix = "tiering.handover"

    hold_hours: int = operational(
        24,
        "A handover does not begin if a broker's free disk space is known and is less than what the topic grows there "
        "in this time: while the handover lasts, no record of the topic is deleted.",
        unit="hours",
        at_least=0,
        at_most=10_000,
    )
    free_bytes: int = operational(
        -1,
        "Free space to assume in the fullest log directory of every broker; set it if this host cannot read it. -1: "
        "read it from the directories in `log_dirs`; without `log_dirs`, ask the brokers.",
        unit="bytes",
        at_least=-1,
        at_most=MOST_LONG,
    )
    watch_seconds: int = operational(
        300,
        "How long a handover waits each time until brokers have flushed segments that they just rolled, show a changed "
        "config, or have read the published records.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    settle_seconds: int = operational(
        600,
        "How long a handover waits at most, after each lowering of local retention, until brokers have deleted "
        "segments. Choose more than `log.retention.check.interval.ms`, which is 5 minutes by default.",
        unit="seconds",
        at_least=1,
        at_most=86_400,
    )
    verify_deep_enable: bool = operational(
        True,
        "True: every segment that is handed over must have passed a deep verification; the others are read completely "
        "before the approval, under the fetch quota. False: a verification of checksums, indexes, beginnings and ends "
        "is enough.",
    )
    brokers_count_once: bool = operational(
        False,
        "True declares that every broker has the fix of KAFKA-20732 (Kafka 4.3.2, or a build with the fix): then "
        "retention.bytes is restored before local retention is lowered. False: that is done only if the brokers' "
        "metadata.version shows Kafka 4.4 or newer; other brokers may, at a restart, count bytes that are both local "
        "and remote twice.",
    )
    local_steps: int = operational(
        8,
        "Most steps in which local retention is lowered; after each, records that are only remote are read and "
        "compared.",
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
    keep_runs: int = Field(default=200, ge=1, le=100_000, description="Most runs of each DAG to keep pages of.")
    keep_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        description="Days after which a DAG's next run removes a page.",
        json_schema_extra={"unit": "days"},
    )


class SuitesSettings(Section):
    """Expectations of the user's own."""

    path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of suite files, the JSON of Great Expectations, which add, remove or tighten "
        "expectations ([expectations](expectations.md)). Commands, Airflow's workers and triggerer, and Spark drivers "
        "read it. Unset: the built-in rules.",
    )


Price = Annotated[str, BeforeValidator(check_price)]


class SizesSettings(Section):
    """The history of sizes."""

    history_path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the history of sizes (Parquet), which all of Airflow's workers can use. Unset: "
        "`sizes-history` next to a SQLite database; with PostgreSQL, in the directory of the size run.",
    )
    history_days: int = Field(
        default=400,
        ge=1,
        le=36_500,
        description="Days of the history of sizes to keep; a size run deletes older ones.",
        json_schema_extra={"unit": "days"},
    )


class RestoreSettings(Section):
    """Where the DAG `tiering_restore` writes."""

    directory: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory below which `tiering_restore` writes; the workers that run it must be able to, and each "
        "restore gets a directory of its own there. Unset: the DAG refuses to run; `./tiering restore` needs no such "
        "setting.",
    )
    into: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Settings file whose section `remote_storage` names the other remote storage into which "
        "`tiering_restore` copies with the form `storage`; the workers that run it must be able to read it. Unset: the "
        "DAG refuses this form.",
    )


class PricesSettings(Section):
    """Prices of remote storage."""

    currency: str = Field(default="USD", pattern=r"^[A-Za-z]{1,10}$", description="Currency of the prices.")
    gib_month: Price | None = Field(
        default=None, description="Price of storing 1 GiB for a month. Unset: this cost is not estimated."
    )
    put_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that write. Unset: their cost is not estimated."
    )
    get_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that read. Unset: their cost is not estimated."
    )
    delete_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that delete. Unset: their cost is not estimated."
    )

    def table(self) -> PriceTable:
        return PriceTable(
            self.currency,
            *(
                None if price is None else Decimal(price)
                for price in (self.gib_month, self.put_requests, self.get_requests, self.delete_requests)
            ),
        )
