"""The Spark data source `kafka-tiered`: topics in remote storage as a table, without a broker.

    from spark_jobs.kafka_tiered import register

    register(spark)
    orders = spark.read.format("kafka-tiered").option("subscribe", "orders").load()

Columns and options are those of Spark's Kafka source; `kafka_tiered_options` has the options, docs/spark-source.md how
to use them. Spark calls the source in three kinds of processes, each of which reads the settings where it runs:

    load        `schema`: the options are checked
    plan        `partitions`: what will be read is planned and logged, before anything of it is read
    each task   `read`: ranges of segments become Arrow batches, at the pace of the fetch quota

What Spark pickles are the options and ranges of segments: no address, no login. Therefore each host of a cluster needs
the settings, as a file that `config` or `TIERING_CONFIG` names, or as variables.
"""

import gc
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from include.tiering.errors import SettingError
from include.tiering.reading.plan_scan import ScanTask
from include.tiering.reading.report import said_of_scan
from include.tiering.telemetry import get_logger, log_to_stderr
from include.tiering.units import MIB
from spark_jobs.kafka_tiered_options import PushedFilters, ReadOptions, pushed_filters, read_options, scan_request
from spark_jobs.shared import ParentWatch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from include.tiering.app import App

FORMAT: Final = "kafka-tiered"
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS: Final = StructField("headers", ArrayType(_HEADER))
BATCH_BYTES: Final = MIB
"""About how many bytes of records Spark gets at once. It takes as long with 1 MiB as with 16, and holds less."""

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_log: Final = get_logger("include.tiering.kafka_tiered")


def register(spark: "SparkSession") -> None:
    """Make the source known to a session, and let Spark pass filters to it."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(KafkaTieredSource)


class KafkaTieredSource(DataSource):
    """What Spark creates for each `spark.read.format("kafka-tiered")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        columns = _columns(read_options(self.options))
        _exempt_from_collection()
        return columns

    def reader(self, schema: StructType) -> "KafkaTieredReader":
        options = read_options(self.options)
        if schema != (columns := _columns(options)):
            raise SettingError(f"{FORMAT} has the columns {columns.simpleString()}: leave out .schema(...)")
        reader = FilteringReader if options.push_filters else KafkaTieredReader
        return reader(dict(self.options))


def _columns(options: ReadOptions) -> StructType:
    return StructType([*COLUMNS.fields, HEADERS]) if options.include_headers else COLUMNS


@dataclass(frozen=True)
class ScanPartition(InputPartition):
    """What one Spark task reads."""

    task: ScanTask

    def __repr__(self) -> str:
        first, last = self.task[0], self.task[-1]
        return f"{first.segment.topic_id_partition} {first.first_offset}..{last.last_offset}"


class KafkaTieredReader(DataSourceReader):
    """Plans a read, and runs its tasks. It can be pickled, and holds nothing but the options and filters."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        _log_to_stderr()
        options = read_options(self._options)
        with _open_app(options) as app:
            remote = app.adapters.stores.metadata.partitions()
            plan = app.reading.plan_scan(scan_request(options, remote, self._pushed), options.client)
            for sentence in plan.said:
                _log.warning("%s", sentence)
            _log.info("%s: %s", FORMAT, said_of_scan(plan, app.reading.least_seconds(plan, options.client)))
        _exempt_from_collection()
        return [ScanPartition(task) for task in plan.tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, ScanPartition):
            return  # Spark makes a partition of its own where the plan has no task
        from include.tiering.formats.record_columns import RecordColumns

        _log_to_stderr()
        options = read_options(self._options)
        read = partition.task[0].segment.topic_id_partition
        columns = RecordColumns(
            read.topic, read.partition, include_headers=options.include_headers, max_bytes=BATCH_BYTES
        )
        with ParentWatch(), _open_app(options) as app:
            yield from app.reading.scan(partition.task, columns, options.client)
        _exempt_from_collection()


class FilteringReader(KafkaTieredReader):
    """A reader to which Spark passes the filters of a query.

    Spark 4.3 keeps a plan with the filters of one query for all others of the same DataFrame, those without filters
    among them, so that they miss records. Therefore this reader is used only if the option `pushFilters` asks for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pushed = pushed_filters(filters)
        return filters


def _open_app(options: ReadOptions) -> "AbstractContextManager[App]":
    from include.tiering.app import open_app
    from include.tiering.settings import load_settings

    return open_app(load_settings(None if options.config is None else Path(options.config)))


@cache
def _log_to_stderr() -> None:
    """Let lines of the library reach the log of the process, once for each process."""
    log_to_stderr(logging.INFO)


@cache
def _exempt_from_collection() -> None:
    """Exempt from garbage collection what this process has: its modules, above all. Only the first call does this.

    Spark uses its Python processes again, and lets each collect garbage after a step of a query or a task. That takes a
    tenth of a second for these modules, for which the next step or task waits.
    """
    gc.freeze()
