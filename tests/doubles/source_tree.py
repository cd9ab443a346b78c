"""The project's own source files, for tests about the source."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def python_files(*directories: str) -> list[Path]:
    """Python files below these directories, relative to the checkout, in a stable order."""
    found = (file for directory in directories for file in (ROOT / directory).rglob("*.py"))
    return sorted(file.relative_to(ROOT) for file in found if "__pycache__" not in file.parts)
