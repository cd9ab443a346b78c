"""The bundled log dirs of real brokers, unpacked so that a platform can read them."""

import tarfile
from pathlib import Path
from typing import Final

import zstandard

from local.layout import ROOT

_ARCHIVES: Final = ROOT / "tests" / "data" / "broker_log_dirs"
# The archives were written with this window size, which a decoder accepts only if its limit is set to it.
_WINDOW_BYTES: Final = 2**27


def unpack(name: str, target: Path) -> Path:
    """Unpack `kafka-<name>.tar.zst` below `target`, unless that was done; return the directory `kafka-<name>`.

    That directory has copies of the log dirs, such as `stopped`, and expected.json.

    Raises:
        FileNotFoundError: there is no archive of that name.
    """
    tree = target / f"kafka-{name}"
    if not tree.exists():
        target.mkdir(parents=True, exist_ok=True)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        with (
            (_ARCHIVES / f"kafka-{name}.tar.zst").open("rb") as packed,
            decompressor.stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            archive.extractall(target, filter="data")
    return tree


def broker_log_dirs(snapshot: Path) -> dict[int, Path]:
    """Return the log dir of each broker by broker id; `snapshot` is one of the copies that `unpack` names."""
    return {int(path.name.removeprefix("broker-")): path for path in sorted(snapshot.glob("broker-*"))}
