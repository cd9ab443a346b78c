"""Compare what the endpoint of the metrics says of copies with the objects in the store."""

import time
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from include.tiering.copying.metrics import COPY_SENT_BYTES
from local.platform import PlatformError

if TYPE_CHECKING:
    from include.tiering.app import App

PORT: Final = 9464
_TIMEOUT_SECONDS: Final = 10.0
_WRITTEN_SECONDS: Final = 120.0
"""Every process has written what it counted once it has ended; a process that runs does about once a minute."""
_POLL_SECONDS: Final = 2.0


def stored_bytes(app: "App") -> dict[str, int]:
    """Return the bytes of all objects of segments in the store's listing, by topic. Raises TieringError."""
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


def scraped_bytes(address: str, token: str) -> dict[str, int]:
    """Return the bytes that batches sent of segments that became FINISHED, by topic, as Prometheus would read them.

    Raises:
        PlatformError: the endpoint does not answer with metrics.
    """
    connection = HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, HTTPException) as error:
        raise PlatformError(f"the endpoint of the metrics at {address} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise PlatformError(f"the endpoint of the metrics at {address} answers {answer.status}: {text[:200]}")
    return {
        sample.labels["topic"]: int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"{COPY_SENT_BYTES.name}_total"
    }


def wait_for_scrape(address: str, token: str, expected: Mapping[str, int]) -> dict[str, int]:
    """Return the first scrape that agrees with `expected`, or the last one of two minutes. Raises PlatformError."""
    deadline = time.monotonic() + _WRITTEN_SECONDS
    while (found := scraped_bytes(address, token)) != expected and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return found


def table(scraped: Mapping[str, int], stored: Mapping[str, int]) -> Table:
    """Show the bytes of each topic in the scrape, and in the store."""
    shown = Table(title="bytes of all objects", title_justify="left")
    shown.add_column("topic")
    for heading in (f"{COPY_SENT_BYTES.name}_total", "in the store"):
        shown.add_column(heading, justify="right")
    for topic in sorted({*scraped, *stored}):
        shown.add_row(topic, str(scraped.get(topic, 0)), str(stored.get(topic, 0)))
    return shown
