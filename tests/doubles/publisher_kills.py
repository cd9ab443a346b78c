"""Publishers that are killed one after another, each a step further than the last, on whatever topic there is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.kafka.metadata_topic.contract import MetadataTopic
from include.tiering.metadata_sync.publish import PublishStep
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.publication_world import LOG_START_OFFSET, PublicationWorld, orders
from tests.doubles.publish_worker import IN_FLIGHT
from tests.doubles.tiered_topic import records_about, require_valid_prefix

WORKER: Final = "publish_worker"
SEGMENTS: Final = 9
RANGES: Final = tuple((100 * number, 100 * number + 99) for number in range(1, SEGMENTS + 1))
PARTITION: Final = 0
_UNKNOWN: Final = frozenset({PublishStep.INTENDED, PublishStep.SENT, PublishStep.READ_BACK})


@dataclass
class Kills:
    """`place` is the topic as a worker is told it. Whoever follows one that died in flight waits for `settle_ms`; of
    the others nothing can be under way."""

    world: PublicationWorld
    topic: MetadataTopic
    place: str
    settle_ms: int = 0
    _died_at: str | None = None

    def while_publishing(self, later_steps: Sequence[str]) -> int:
        """Two for each record: once it is written down, and at one of `later_steps`, each in its turn. Then to the end.
        Returns how many died."""
        died = 0
        for number in range(2 * SEGMENTS):
            # Both records of a segment see every step in the course of time.
            later = later_steps[(number // 2 + number) % len(later_steps)]
            for step in (PublishStep.INTENDED, later):
                self._kill(step, number)
                died += 1
        self._run()
        assert self._finished() == list(RANGES)
        assert len(records_about(self.topic, orders(PARTITION))) == 2 * SEGMENTS
        return died

    def while_telling_deletions(self, steps: Sequence[str]) -> int:
        """One for each record, after everything was published and then deleted here. Returns how many died."""
        after_all = ("--log-start-offset", str(RANGES[-1][1] + 1))
        numbers = range(2 * SEGMENTS, 4 * SEGMENTS)
        for number in numbers:
            self._kill(steps[(number // 2 + number) % len(steps)], number, *after_all)
        self._run(*after_all)
        assert self._finished() == []
        assert len(records_about(self.topic, orders(PARTITION))) == 4 * SEGMENTS
        return len(numbers)

    def _kill(self, step: str, number: int, *options: str) -> None:
        kill_worker(str(PARTITION), *self._options(options), "--kill-at", step, "--number", str(number), worker=WORKER)
        self._died_at = step
        journal = self.world.journals.journal(orders(PARTITION))
        assert journal is not None
        assert len(journal.records) == number + 1, "it died elsewhere"
        if step in list(PublishStep):
            assert (journal.pending is not None) is (step in _UNKNOWN), "it died elsewhere"
            in_topic = len(records_about(self.topic, orders(PARTITION)))
            assert in_topic == number + (step != PublishStep.INTENDED), "it died elsewhere"
        self._finished()

    def _run(self, *options: str) -> None:
        assert run_worker(str(PARTITION), *self._options(options), worker=WORKER) == 0

    def _finished(self) -> list[tuple[int, int]]:
        records = records_about(self.topic, orders(PARTITION))
        return require_valid_prefix(records, log_start_offset=LOG_START_OFFSET)

    def _options(self, options: Sequence[str]) -> Iterator[str]:
        database = self.world.engine.url.render_as_string(hide_password=False)
        settle_ms = self.settle_ms if self._died_at == IN_FLIGHT else 0
        yield from ("--database", database, "--topic", self.place, "--settle-ms", str(settle_ms), *options)
