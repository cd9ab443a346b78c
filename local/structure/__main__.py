"""Print the structure counters of a checkout.

python -m local.structure [--root DIR] [--json] [--no-trace]
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from local.layout import ROOT
from local.structure.counters import measure
from local.structure.limits import limits_of
from local.structure.report import text_of
from local.structure.source import read_project
from local.structure.trace import run_trace


def main(arguments: Sequence[str]) -> int:
    """Print the counters and return the exit code, which is always 0."""
    parser = argparse.ArgumentParser("structure", description="Print the structure counters of a checkout.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout; without it, this one")
    parser.add_argument("--json", action="store_true", help="print JSON, with the lists behind the counters")
    parser.add_argument("--no-trace", action="store_true", help="do not copy and verify a segment to trace its path")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    project = read_project(root)
    structure = measure(project)
    if not options.no_trace:
        trace = run_trace(root, project)
        structure = replace(structure, values={**structure.values, **trace.values}, trace=trace.document())
    if options.json:
        print(json.dumps(asdict(structure), indent=2))
    else:
        print(text_of(structure, limits_of(root)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
