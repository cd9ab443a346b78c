"""A damaged inventory ends no process that reads it."""

import gzip
import subprocess
import sys
from pathlib import Path

from tests.doubles.source_tree import ROOT
from tests.unit.remote_storage.test_inventory import manifest, with_content

__all__ = ["manifest"]


def test_a_row_without_end_is_refused_and_the_process_lives(tmp_path: Path, manifest: Path) -> None:
    """In a process of its own: a thread of the reader aborted it at its end."""
    with_content(tmp_path, manifest, gzip.compress(b'"b","' + b"a" * (1 << 24)))
    program = (
        "import sys; from pathlib import Path; from tests.unit.remote_storage.test_inventory import listed;"
        "listed(Path(sys.argv[1]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(manifest)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "a row of more than 65536 bytes" in ended.stderr
