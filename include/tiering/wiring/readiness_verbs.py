"""Whether a run can start, which partitions are ready, and why a topic is not tiered."""

from collections.abc import Collection

from include.tiering.tasks.partition_readiness import partition_readiness
from include.tiering.tasks.readiness import Readiness, run_checks
from include.tiering.wiring.pool_verbs import PoolVerbs
from include.tiering.wiring.set_up import readiness_probes


class ReadinessVerbs(PoolVerbs):
    """Part of `Tiering`."""

    def readiness(self, *, pool: str | None = None, topics: Collection[str] | None = None) -> Readiness:
        """Schema, store, log dirs, topic facts, pause and, if one is named, the pool; then partition by partition.

        Without `topics` (patterns) those of `topics.include`.
        """
        checks = run_checks(readiness_probes(self, pool))
        if not all(check.ok for check in checks):
            return Readiness(checks)
        wanted = tuple(topics or self.settings.topics.include)
        partitions = partition_readiness(
            self.source.scan(topics=wanted),
            topics=wanted,
            metadata=self.metadata,
            registry=self.registry,
            facts=self.facts,
            paused=self.work.paused_topics(),
        )
        return Readiness(checks, partitions)
