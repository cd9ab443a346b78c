"""Stop everything that `python -m local.up` started, running tasks and Spark jobs included."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from local.layout import Layout
from local.platform import stop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.down", description=__doc__)
    parser.add_argument("--home", type=Path, help="the directory that was given to `local.up` as --home")
    home = parser.parse_args().home
    console = Console(highlight=False)
    ended = stop(Layout.below(home.resolve()) if home else Layout.of_checkout(), console.print)
    console.print(f"{ended} processes ended" if ended else "nothing was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
