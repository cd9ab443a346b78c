"""Spark jobs. PySpark is imported from where it is installed, not from Spark's zip file of it.

Spark puts `python/lib/pyspark.zip` of its home in front of the path of the driver and of the tasks. The zip file has no
bytecode, so each of these processes would compile PySpark, which takes as long as all that a batch does before its
first byte. Where Spark's home is the installed package itself, both hold the same modules.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def without_zipped_pyspark(path: list[str]) -> list[str]:
    """Return the path without Spark's zip file of PySpark, if the package that has this file is found without it."""
    rest = [entry for entry in path if not entry.endswith("/python/lib/pyspark.zip")]
    found = PathFinder.find_spec("pyspark", rest) if len(rest) < len(path) else None
    if found is None or found.origin is None:
        return path
    home = Path(found.origin).parent
    return [entry for entry in path if entry in rest or Path(entry).parents[2].resolve() != home.resolve()]


if "pyspark" not in sys.modules:
    sys.path[:] = without_zipped_pyspark(sys.path)
