"""python -m tests.life: lead a cluster through its life, and show what was said.

walk [--minutes M] [--seed S] [--journal FILE]    exit code 1 on a finding
table FILE [--write]                              of a journal, as Markdown; into docs/life.md
"""

import argparse
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.doubles.source_tree import ROOT
from tests.life.cluster import VERSION
from tests.life.journal import Journal, rows_of, table
from tests.life.lab import Lab, open_cluster, open_lab
from tests.life.platform import warm_commands
from tests.life.walk import PATTERN, Walk

_PAGE: Final = ROOT / "docs" / "life.md"
_MARKER: Final = "<!-- events -->"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.life", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    walking = commands.add_parser("walk")
    walking.add_argument("--minutes", type=float, default=30)
    walking.add_argument("--seed", type=int, default=1)
    walking.add_argument("--journal", type=Path)
    showing = commands.add_parser("table")
    showing.add_argument("journal", type=Path)
    showing.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "table":
        return _show(table(rows_of(arguments.journal)), write=arguments.write)
    return _walk(arguments.minutes, arguments.seed, arguments.journal or Path(f".run/life/seed-{arguments.seed}.jsonl"))


def _show(found: str, *, write: bool) -> int:
    if not write:
        sys.stdout.write(found)
        return 0
    before, marker, _ = _PAGE.read_text().partition(_MARKER)
    _PAGE.write_text(f"{before}{marker}\n\n{found}")
    return 0


def _walk(minutes: float, seed: int, path: Path) -> int:
    path.unlink(missing_ok=True)
    # Ended from outside, it stops its brokers all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _say(f"Kafka {VERSION}, seed {seed}, {minutes:g} minutes; journal: {path}")
    with open_cluster() as cluster, warm_commands() as warm, open_lab(cluster, [PATTERN], warm, Journal(path)) as lab:
        walk, began = Walk(lab, seed), time.monotonic()
        try:
            walk.begin()
            walk.run(60 * minutes, _say)
            walk.end()
        except Exception as error:  # noqa: BLE001 - a walk that cannot go on is a finding, and its seed is printed
            traceback.print_exc()
            lab.findings.append(f"it did not get on: {error}")
        _say(_summary(walk, time.monotonic() - began))
        if lab.findings:
            _keep(lab, path.with_suffix(""))
        return 1 if lab.findings else 0


def _keep(lab: Lab, directory: Path) -> None:
    """What can be looked at afterwards: the brokers' directories and logs, the platforms' databases and stores."""
    shutil.rmtree(directory, ignore_errors=True)
    cluster, platforms = lab.cluster.node(1).directory.parent, lab.platforms[0].directory.parent
    shutil.copytree(cluster, directory / "brokers")
    shutil.copytree(platforms, directory / "platforms")
    _say(f"kept: {directory}")


def _summary(walk: Walk, seconds: float) -> str:
    lab = walk.lab
    compared = ", ".join(f"{name} {one.compared}" for name, one in lab.comparisons.items())
    events = ", ".join(f"{title} {times}" for title, times in walk.done.most_common())
    decisions = ", ".join(f"{one.name} {len(one.decisions)}" for one in lab.platforms)
    lines = [
        f"{walk.steps} events in {seconds / 60:.1f} minutes: {events}",
        f"runs of copy after events: {lab.copies}, by both platforms together",
        f"records: {lab.oracle.records} read by consumers; archived ones compared with them: {compared}",
        f"exit codes: {_exit_codes(lab)}",
        f"decisions: {decisions}",
        f"findings: {len(lab.findings)}",
    ]
    if lab.findings:
        last = [f"  {row['event']} ({row['topic']}): {row['true']}" for row in lab.journal.rows[-5:]]
        lines += [*(f"  {one}" for one in lab.findings), f"seed {walk.seed}; the last events:", *last]
    return "\n".join(lines)


def _exit_codes(lab: Lab) -> str:
    commands = sorted({name for platform in lab.platforms for name in platform.said})
    return ", ".join(f"{name} {_joined([one.said.get(name, set()) for one in lab.platforms])}" for name in commands)


def _joined(codes: Sequence[set[int]]) -> str:
    return "/".join(map(str, sorted(set().union(*codes))))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
