"""A fetched segment gets its name only if it is what the source had."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pytest

from include.tiering.errors import RemoteChecksumError
from include.tiering.reading import files

CONTENT = b"abcdef"
CRC32C = google_crc32c.value(CONTENT)


@pytest.mark.parametrize(
    ("size_bytes", "crc32c", "expected"),
    [
        (6, CRC32C, None),
        (6, None, None),
        (6, CRC32C ^ 1, f"had 6 bytes with CRC-32C {CRC32C ^ 1:08x}"),
        (7, CRC32C, f"had 7 bytes with CRC-32C {CRC32C:08x}"),
        (7, None, "had 7 bytes with CRC-32C unknown"),
    ],
)
def test_either_a_wrong_size_or_a_wrong_checksum_is_enough(
    tmp_path: Path, size_bytes: int, crc32c: int | None, expected: str | None
) -> None:
    metadata = SimpleNamespace(segment_size_bytes=size_bytes, remote_log_segment_id="orders-0:1")
    row: Any = SimpleNamespace(metadata=metadata, log_crc32c=crc32c)
    storage: Any = SimpleNamespace(
        fetch_log_segment=lambda _metadata, *, limiter, ranges: iter((CONTENT[:4], CONTENT[4:]))
    )
    limiter: Any = None
    final = tmp_path / "00000000000000000000.log"
    if expected is None:
        assert files._fetch_log(row, final, storage, limiter, 1).read_bytes() == CONTENT
    else:
        with pytest.raises(RemoteChecksumError, match=expected):
            files._fetch_log(row, final, storage, limiter, 1)
        assert not final.exists()
