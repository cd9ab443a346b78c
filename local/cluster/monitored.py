"""Checks of a cluster's metrics while it works, each on values that were really scraped.

The endpoint is asked as Prometheus asks it. Where a Prometheus can be had (`programs.prometheus_directory`), one runs
beside the cluster, with the alert rules of this repository.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Console

from include.tiering.app import open_app
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.copying.metrics import COPY_SENT_BYTES
from include.tiering.quotas.metrics import COPY_THROTTLE_MAX
from include.tiering.settings import load_settings
from local.cluster import prometheus, scrape, throttle
from local.cluster.programs import ProgramMissingError, prometheus_directory
from local.cluster.prometheus import Prometheus
from local.cluster.scrape import Endpoint, Scrape, token_file
from local.cluster.throttle import QUOTAS, Throttled, throttled

if TYPE_CHECKING:
    from include.tiering.app import App
    from local.cluster.assembly import Assembled

_INTERVAL_SECONDS: Final = 5
_ARRIVES_SECONDS: Final = 120.0
_DANGLING: Final = "TieringDanglingReferences"
_AUTHOR: Final = "demo"


def start_prometheus(assembled: "Assembled", say: Callable[[str], None]) -> Prometheus | None:
    """Start a Prometheus that scrapes the cluster; return None, and say why, if there is none here.

    Raises:
        PlatformError: promtool refuses the rules, or the server does not start.
    """
    state, endpoint = assembled.cluster.state, Endpoint.of(assembled.cluster)
    try:
        programs = prometheus_directory()
    except ProgramMissingError as error:
        say(f"no Prometheus: {error}")
        return None
    config = prometheus.configuration(
        [endpoint.address],
        prometheus.ALERTS,
        interval_seconds=_INTERVAL_SECONDS,
        token_file=token_file(state),
    )
    server = prometheus.start(
        programs, state.root / "prometheus", config, pid_files=state.pid_files, log=state.logs / "prometheus.log"
    )
    say(f"promtool accepts {prometheus.ALERTS.name}; Prometheus is at http://{server.address}")
    return server


@dataclass(slots=True)
class Monitored:
    """The metrics of a cluster. Each check prints what it compared, and yields a line for each difference."""

    assembled: "Assembled"
    app: "App"
    console: Console
    say: Callable[[str], None]
    server: Prometheus | None
    _found: list[Throttled] = field(default_factory=list)

    @property
    def _endpoint(self) -> Endpoint:
        return Endpoint.of(self.assembled.cluster)

    def throttle_times(self, copy: Callable[[str], bool]) -> Iterator[str]:
        """Let `copy` copy one topic after the other, each under a quota of its own; compare with the model."""
        configs = self.app.configs
        configs.alter(ALL_BROKERS, {throttle.ONE_AT_A_TIME: "1"}, author=_AUTHOR)
        before = self._endpoint.scrape()
        for topic, quota in QUOTAS.items():
            self.say(f"copying {topic} under a quota of {quota} bytes a second")
            configs.alter(ALL_BROKERS, {throttle.QUOTA: str(quota)}, author=_AUTHOR)
            if not copy(topic):
                yield f"{topic} was not copied"
                return
            after = self._written()
            self._found.append(throttled(self.app, topic, before, after))
            before = after
        configs.alter(ALL_BROKERS, {throttle.ONE_AT_A_TIME: None, throttle.QUOTA: None}, author=_AUTHOR)
        self.console.print(throttle.table(self._found))
        yield from throttle.faults(self._found)

    def copied_bytes(self) -> Iterator[str]:
        """Compare a scrape, and what Prometheus has, with the bytes of all objects in the store."""
        self.say("waiting for a scrape of the metrics with the bytes in the store")
        stored = scrape.stored_bytes(self.app)
        scraped = self._written().by_topic(COPY_SENT_BYTES)
        self.console.print(scrape.table(scraped, stored))
        if scraped != stored:
            yield "the scrape has other bytes than the store"
        if self.server is not None:
            yield from self._prometheus_differs(self.server, stored)

    def _prometheus_differs(self, server: Prometheus, stored: Mapping[str, int]) -> Iterator[str]:
        name = COPY_SENT_BYTES.shown_name

        def has_all() -> bool:
            return {labels["topic"]: int(value) for labels, value in server.query(name)} == stored

        if not server.wait_for(has_all, _ARRIVES_SECONDS):
            yield f"Prometheus has other values of {name} than the store has bytes"
        least = max((one.throttle_seconds for one in self._found), default=0.0)
        peaks = f"max_over_time({COPY_THROTTLE_MAX.shown_name}[1h]) / 1000"

        def peak_seconds() -> float:
            return max((value for _, value in server.query(peaks)), default=0.0)

        # A minute is shown once all processes have written it.
        if not server.wait_for(lambda: peak_seconds() >= least, _ARRIVES_SECONDS):
            yield f"{COPY_THROTTLE_MAX.shown_name} was never above {peak_seconds():.2f} s; an average was {least:.2f} s"
        self.say(f"Prometheus saw a highest throttle time of {peak_seconds():.2f} s")

    def alerts(self) -> Iterator[str]:
        """Remove an object behind the platform's back: its alert has to fire after the next audit, and not before."""
        server, cluster = self.server, self.assembled.cluster
        if server is None:
            return
        if _DANGLING in server.firing():
            yield f"{_DANGLING} fires while each segment has its objects"
        log = min((cluster.host.volume("objects") / "data").rglob("*.log"))
        self.say(f"removing {log.name} from the store, and waiting for {_DANGLING} after an audit")
        log.unlink()
        # Metrics are written by the end of a process, at the latest.
        with open_app(load_settings(cluster.state.settings)) as app:
            app.configs.alter(ALL_BROKERS, {"tiering.audit.min.age.ms": "0"}, author=_AUTHOR)
            app.audit.run("an object is lost")
        if not server.wait_for(lambda: _DANGLING in server.firing(), _ARRIVES_SECONDS):
            yield f"{_DANGLING} does not fire"
        self.say(f"alerts that fire: {', '.join(sorted(server.firing())) or 'none'}")

    def _written(self) -> Scrape:
        return self._endpoint.wait_for_sent(scrape.stored_bytes(self.app))
