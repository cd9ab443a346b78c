"""What an audit compares, written down as Parquet: the listing first, then the rows of the metadata.

Each task opens the library and reads its parts page by page; a page is columns before the next is read, so memory does
not grow with their number. What is written is read as often as needed and stays what it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from include.tiering.app import App, open_app
from include.tiering.audit.finding import ManifestReader
from include.tiering.settings import load_settings
from spark_jobs.audit_frames import (
    FACTS,
    FACTS_SCHEMA,
    LISTED,
    LISTED_SCHEMA,
    Batches,
    batch_of,
    listed_row,
    upload_row,
)
from spark_jobs.audit_transform import OpenManifests
from spark_jobs.parent_watch import ParentWatch
from spark_jobs.task_errors import ERROR_COLUMNS, telling, without_errors

_UPLOADS: Final = None
"""The part of a listing that is no part of its keys: open uploads."""


def write_listing(
    session: SparkSession, parts: Sequence[Any], inventory: str | None, target: Path, *, config: Path | None
) -> DataFrame:
    """`LISTED` of all parts and of open uploads.

    Raises:
        TaskStoppedError: one of them could not be listed.
    """
    work = (*parts, _UPLOADS)

    def read(mine: Sequence[Any], app: App) -> Batches:
        listing = app.audit.listing_of(inventory)
        for part in mine:
            if part is _UPLOADS:
                pages = ([upload_row(upload) for upload in page] for page in listing.open_uploads())
            else:
                pages = ([listed_row(listed) for listed in page] for page in listing.pages(part))
            yield from (batch_of(page, LISTED_SCHEMA) for page in pages)

    return written(_spread(session, work, LISTED, LISTED_SCHEMA, read, config), target)


def write_facts(session: SparkSession, app: App, ranges: int, target: Path, *, config: Path | None) -> DataFrame:
    """`FACTS` of every segment of now, tombstones included.

    Raises:
        TaskStoppedError: a range could not be read.
    """

    def read(mine: Sequence[Any], reader: App) -> Batches:
        pages = (page for key_range in mine for page in reader.adapters.stores.segment_facts.export(key_range))
        yield from (batch_of(page, FACTS_SCHEMA) for page in pages)

    work = app.adapters.stores.segment_facts.split(ranges)
    return written(_spread(session, work, FACTS, FACTS_SCHEMA, read, config), target)


def manifests_of_the_store(config: Path | None) -> OpenManifests:
    """Manifests as the store has them. A task that needs none opens nothing."""

    @contextmanager
    def opened() -> Iterator[ManifestReader]:
        with ParentWatch(), ExitStack() as stack:
            found: list[App] = []

            def read(key: str) -> bytes | None:
                if not found:
                    found.append(stack.enter_context(open_app(load_settings(config))))
                return found[0].adapters.strays.manifest(key)

            yield read

    return opened


def _spread(
    session: SparkSession,
    work: Sequence[Any],
    columns: str,
    schema: pa.Schema,
    read: Callable[[Sequence[Any], App], Batches],
    config: Path | None,
) -> DataFrame:
    def of_task(numbers: Batches) -> Batches:
        mine = [work[number] for batch in numbers for number in batch.column("id").to_pylist()]
        if mine:
            with ParentWatch(), open_app(load_settings(config)) as app:
                yield from read(mine, app)

    tasks = max(1, len(work))
    numbers = session.range(0, len(work), 1, numPartitions=tasks)
    return numbers.mapInArrow(telling(of_task, schema), columns + ERROR_COLUMNS)


def written(rows: DataFrame, target: Path) -> DataFrame:
    """Rows with the columns of `task_errors`, written and read back without them.

    Raises:
        TaskStoppedError: a task told of an error.
    """
    rows.write.mode("overwrite").parquet(str(target))
    return without_errors(rows.sparkSession.read.schema(rows.schema).parquet(str(target)))
