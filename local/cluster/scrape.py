"""Read the endpoint of the metrics, and compare what it says of copies with the objects in the store."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from include.tiering.copying.metrics import COPY_SENT_BYTES
from include.tiering.telemetry.metrics import Metric
from local.platform import PlatformError

if TYPE_CHECKING:
    from include.tiering.app import App
    from local.cluster.cluster import Cluster
    from local.cluster.host import State

_PORT: Final = 9464
_TIMEOUT_SECONDS: Final = 10.0
_WRITTEN_SECONDS: Final = 120.0
"""Every process has written what it counted once it has ended; a process that runs does about once a minute."""
_POLL_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of the endpoint: values by the name of the sample and its labels."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def total(self, metric: Metric, **labels: str) -> float:
        """Return the sum of the series of a metric that have these labels."""
        wanted = labels.items()
        return sum(
            value
            for (name, of), value in self.values.items()
            if name == metric.shown_name and wanted <= dict(of).items()
        )

    def by_topic(self, metric: Metric) -> dict[str, int]:
        """Return the values of a metric by its label `topic`, as whole numbers."""
        return {
            topic: int(value)
            for (name, labels), value in self.values.items()
            if name == metric.shown_name and (topic := dict(labels).get("topic")) is not None
        }


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of a cluster's metrics, which demands `token`."""

    address: str
    token: str

    @classmethod
    def of(cls, cluster: "Cluster") -> Self:
        token = token_file(cluster.state).read_text().strip()
        return cls(f"{cluster.host.addresses['metrics']}:{_PORT}", token)

    def scrape(self) -> Scrape:
        """Ask as Prometheus would. Raises PlatformError if the endpoint does not answer with metrics."""
        connection = HTTPConnection(self.address, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, HTTPException) as error:
            raise PlatformError(f"the endpoint of the metrics at {self.address} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise PlatformError(f"the endpoint of the metrics at {self.address} answers {answer.status}: {text[:200]}")
        return Scrape(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def wait_for_sent(self, expected: Mapping[str, int]) -> Scrape:
        """Return the first scrape in which batches sent `expected` bytes of each topic, or the last of two minutes.

        Raises:
            PlatformError: the endpoint does not answer.
        """
        deadline = time.monotonic() + _WRITTEN_SECONDS
        while (found := self.scrape()).by_topic(COPY_SENT_BYTES) != expected and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return found


def token_file(state: "State") -> Path:
    """Return the file of the token that the endpoint demands."""
    return state.secrets / "metrics_token"


def stored_bytes(app: "App") -> dict[str, int]:
    """Return the bytes of all objects of segments in the store's listing, by topic."""
    topics = {
        f"{partition.topic}-{partition.topic_id}": partition.topic
        for partition in app.adapters.stores.metadata.partitions()
    }
    found: Counter[str] = Counter()
    for key, size_bytes in app.adapters.storage.list_objects():
        topic = next((topics[part] for part in key.split("/") if part in topics), None)
        if topic is not None:
            found[topic] += size_bytes
    return dict(found)


def table(scraped: Mapping[str, int], stored: Mapping[str, int]) -> Table:
    """Show the bytes of each topic in the scrape, and in the store."""
    shown = Table(title="bytes of all objects", title_justify="left")
    shown.add_column("topic")
    for heading in (COPY_SENT_BYTES.shown_name, "in the store"):
        shown.add_column(heading, justify="right")
    for topic in sorted({*scraped, *stored}):
        shown.add_row(topic, str(scraped.get(topic, 0)), str(stored.get(topic, 0)))
    return shown
