"""Stop everything that `python -m local.up` started, running tasks and Spark jobs included."""

import sys

from rich.console import Console

from local.layout import Layout
from local.platform import stop


def main() -> int:
    console = Console(highlight=False)
    ended = stop(Layout.of_checkout(), console.print)
    console.print(f"{ended} processes ended" if ended else "nothing was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
