"""Rows of one file of an inventory, batch by batch: a file of any length is read in the memory of one batch.

CSV: gzip, no header, every field in quotes, keys percent-encoded, an empty field for what is not there. Parquet: named
columns, typed, keys as they are.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.inventory.manifest import FileFormat, InventoryManifest, plain_name
from include.tiering.units import MIB

_BATCH_ROWS: Final = 20_000
_CSV_BLOCK_BYTES: Final = 4 * MIB
_WANTED: Final = ("bucket", "key", "versionid", "islatest", "isdeletemarker", "size", "lastmodifieddate")

Columns = dict[str, list[Any]]
"""Values by plain name. `lastmodifieddate` is text in CSV and milliseconds in Parquet, the others are text in CSV."""


def file_columns(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    """Raises RemoteStorageError if it is no such file, or has other columns than the manifest says."""
    reading = _csv if manifest.file_format is FileFormat.CSV else _parquet
    try:
        yield from reading(content, manifest)
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise RemoteStorageError(f"a file of the inventory cannot be read ({type(error).__name__})") from error


def _csv(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    wanted = [name for name in manifest.columns if name in _WANTED]
    with gzip.GzipFile(fileobj=content) as unpacked:
        if not unpacked.read(1):  # Arrow takes a file without a row for a broken one
            return
    content.seek(0)
    reader = pyarrow.csv.open_csv(
        pa.CompressedInputStream(pa.PythonFile(content, mode="r"), "gzip"),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_CSV_BLOCK_BYTES, column_names=list(manifest.columns)
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(manifest.columns, pa.string()), include_columns=wanted
        ),
    )
    for batch in reader:
        yield batch.to_pydict()


def _parquet(content: IO[bytes], manifest: InventoryManifest) -> Iterator[Columns]:
    file = pq.ParquetFile(content)
    names = {plain_name(name): name for name in file.schema_arrow.names}
    if missing := set(manifest.columns) - set(names):
        raise RemoteStorageError(f"a file of the inventory has no {', '.join(sorted(missing))}, which its schema names")
    wanted = {name: names[name] for name in manifest.columns if name in _WANTED}
    for batch in file.iter_batches(_BATCH_ROWS, columns=list(wanted.values()), use_threads=False):
        columns = {name: batch.column(stored) for name, stored in wanted.items()}
        columns["lastmodifieddate"] = columns["lastmodifieddate"].cast(pa.timestamp("ms")).cast(pa.int64())
        yield {name: column.to_pylist() for name, column in columns.items()}
