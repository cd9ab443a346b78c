"""`./tiering ingest` as a process, over a metadata topic that is a directory.

    python -m tests.doubles.follow_worker TOPIC_DIRECTORY [option of ingest ...]

While the file `away` is in the directory brokers do not answer. Settings come from TIERING_... variables.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.errors import MetadataTopicUnavailableError
from include.tiering.settings import TieringSettings
from tests.doubles.memory_metadata_topic import FileMetadataTopic

AWAY: Final = "away"
PARTITIONS: Final = 3


class SometimesAway(FileMetadataTopic):
    """Nobody answers who it is while they are away."""

    def partition_count(self) -> int:
        if (self.directory / AWAY).exists():
            raise MetadataTopicUnavailableError("no broker answers")
        return super().partition_count()


def main() -> None:
    topic = SometimesAway(Path(sys.argv[1]), PARTITIONS)

    @contextmanager
    def opened(settings: TieringSettings) -> Iterator[App]:
        with open_app(settings) as app:
            app.adapters.metadata_topic_reader = topic
            yield app

    cli(["ingest", *sys.argv[2:]], obj=Session(open_app=opened), prog_name="./tiering")


if __name__ == "__main__":
    main()
