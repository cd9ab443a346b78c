"""A process that reads the metadata topic of a real broker and, if told to, dies by SIGKILL at a named point of it.

    ingest_worker RUN_ID [--kill-at POINT] [--again] [--poison]

POINT is a value of `IngestStep`, or `commit`: a page is written and not committed. It dies the first time it is there.
The topic has what the broker wrote; with --poison a record behind it that stops brokers. --again puts the positions
back first. Settings come from TIERING_... variables; RUN_ID is not used: the positions say what is left to do.
"""

import argparse

from sqlalchemy import event

from include.tiering.app import App, open_app
from include.tiering.metadata_sync.ingest import Ingester, IngestStep
from include.tiering.settings import load_settings
from tests.doubles.dying import die
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.tiered_topic import tiered_topic

PAGE_RECORDS = 9
POISONED_PARTITION = 2
BEFORE_COMMIT = "commit"


def ingested_topic(*, poison: bool = False) -> MemoryMetadataTopic:
    topic = tiered_topic()
    if poison:
        topic.append(POISONED_PARTITION, b"no record")
    return topic


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--kill-at")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--poison", action="store_true")
    arguments = parser.parse_args()

    def observe(step: IngestStep, _number: int) -> None:
        if step == arguments.kill_at:
            die()
        if step is IngestStep.READ and arguments.kill_at == BEFORE_COMMIT:
            _die_before_the_next_commit(app)

    with open_app(load_settings()) as app:
        topic = ingested_topic(poison=arguments.poison)
        ingester = Ingester(topic, app.adapters.stores.ingestion, "test", PAGE_RECORDS, observe)
        if arguments.again:
            ingester.read_again()
        ingester.run()


def _die_before_the_next_commit(app: App) -> None:
    event.listen(app.adapters.engine, "commit", lambda _connection: die())
