"""Stop everything that `python -m local.cluster.up` started, running tasks and Spark jobs included."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from local.cluster.cluster import stop
from local.cluster.host import State
from local.cluster.up import DEFAULT_HOME


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.cluster.down", description=__doc__)
    parser.add_argument("--home", type=Path, default=DEFAULT_HOME, help="the directory that was given to `up`")
    console = Console(highlight=False)
    ended = stop(State(parser.parse_args().home.resolve()), console.print)
    console.print(f"{ended} processes ended" if ended else "nothing was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
