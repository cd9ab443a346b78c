"""How metrics leave the platform: the endpoint that Prometheus scrapes, and exports to an OpenTelemetry collector.

The endpoint has `/metrics`, and `/-/healthy`, which answers without the database.
Without a token it listens on loopback only, because the metrics name topics and say how large they are, and answers
only requests for a name of loopback, so that no page of another name can read them in a browser. With a token,
`/metrics` demands it as a bearer token on every address. An error of the database is status 503, so that a scrape fails
and Prometheus sets `up` to 0.

A collector gets the metrics if OpenTelemetry's own variables of the environment name one. Its packages are imported
only then. An export sends counters as monotonic sums and the others as gauges, under the names that Prometheus shows.
The other variables of OpenTelemetry apply, such as OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRIC_EXPORT_INTERVAL and
OTEL_RESOURCE_ATTRIBUTES; the protocol is http/protobuf.
"""

import hmac
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from include.tiering.errors import SettingError, TieringError, printable
from include.tiering.operations.monitoring import MetricValues, MonitoringService
from include.tiering.settings.secret_files import open_to_others
from include.tiering.telemetry import get_logger, redact
from include.tiering.telemetry.metrics import Metric, MetricKind

if TYPE_CHECKING:
    from opentelemetry.metrics import Observation

DEFAULT_ADDRESS: Final = "127.0.0.1:9464"
_MOST_TOKEN_BYTES: Final = 4096
_LEAST_TOKEN_CHARACTERS: Final = 16
_REQUEST_SECONDS: Final = 10
_MOST_CLIENTS: Final = 16
_POLL_SECONDS: Final = 0.1
_MOST_PORT: Final = 65_535
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log: Final = get_logger(__name__)

Values = Callable[[], Sequence[MetricValues]]


class MetricsServer:
    """Serves metrics while its context lasts; `address` has the port that was given, or that the system chose for 0.

    Raises:
        SettingError: the address is not HOST:PORT, is in use, or is not loopback although there is no token.
    """

    def __init__(self, values: Values, *, address: str = DEFAULT_ADDRESS, token: str | None = None) -> None:
        host, port = _parsed(address)
        if token is None and not _is_loopback(host):
            raise SettingError(
                f"--listen {printable(address)}: others than this host could read the metrics; give --token-file, or"
                f" listen on {DEFAULT_ADDRESS}"
            )
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = kind((host, port), _Handler)
        except OSError as error:
            raise SettingError(f"--listen {printable(address)}: {error.strerror or error}") from error
        self._server.set_app(application(values, token))
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), name="metrics-server")

    def __enter__(self) -> Self:
        """Begin to answer requests, in a thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def read_token(path: Path) -> str:
    """Return the bearer token in a file; line ends are not part of it.

    Raises:
        SettingError: the file cannot be read, others than its owner can read it, or it holds no token of 16 to 4096
            printable ASCII characters without spaces.
    """
    name = f"--token-file {printable(str(path))}"
    try:
        if refusal := open_to_others(f"{name} holds a token", path.stat().st_mode):
            raise SettingError(refusal)
        with path.open("rb") as file:
            token = file.read(_MOST_TOKEN_BYTES + 1).strip().decode("ascii", errors="replace")
    except OSError as error:
        raise SettingError(f"{name}: {error.strerror}") from error
    is_plain = all("!" <= character <= "~" for character in token)
    if not (_LEAST_TOKEN_CHARACTERS <= len(token) <= _MOST_TOKEN_BYTES and is_plain):
        raise SettingError(
            f"{name}: needs 16 to 4096 printable ASCII characters, such as `openssl rand -hex 32` writes"
        )
    return token


def application(values: Values, token: str | None) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if token is None and not _names_loopback(environ.get("HTTP_HOST", "localhost")):
            # A browser on this host, whose page's name was made to point here: the page must not read the answer.
            return _plain(start_response, "403 Forbidden", f"Without a token, ask for {DEFAULT_ADDRESS} or localhost.")
        if path == "/-/healthy":
            return _plain(start_response, "200 OK", "The endpoint answers.")
        if path != "/metrics":
            return _plain(start_response, "404 Not Found", "Metrics are at /metrics.")
        if token is not None and not _has_token(environ.get("HTTP_AUTHORIZATION", ""), token):
            return _plain(
                start_response, "401 Unauthorized", "A bearer token is needed.", ("WWW-Authenticate", "Bearer")
            )
        try:
            read = values()
        except TieringError as error:
            _log.warning("no metrics: %s", error)
            return _plain(start_response, "503 Service Unavailable", redact(str(error)))
        registry = CollectorRegistry()
        registry.register(_Read(read))
        shown: Iterable[bytes] = make_wsgi_app(registry)(environ, start_response)
        return shown

    return answer


def _plain(start_response: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


def _names_loopback(host_header: str) -> bool:
    """Return whether the header `Host`, with or without a port, names this host alone."""
    name = host_header.strip()
    if name.startswith("["):
        return _is_loopback(name[1:].partition("]")[0])
    return _is_loopback(name.partition(":")[0].lower())


def _has_token(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    is_equal = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
    return is_equal and scheme.lower() == "bearer"


class _Read(Collector):
    """Values that were read, as families of prometheus-client. A metric without a value is left out."""

    def __init__(self, read: Sequence[MetricValues]) -> None:
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric_values in self._read:
            metric = metric_values.metric
            kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.sentence, labels=metric.labels)
            for labels, value in metric_values.values:
                family.add_metric(labels, value)
            if family.samples:
                yield family


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each client in a thread, and closes the connections of those beyond `_MOST_CLIENTS` at once."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handler's own limit applies to each read, so a client that sends a byte now and then would stay for ever.
        deadline = threading.Timer(_REQUEST_SECONDS, _hang_up, [request])
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log no stack: most of these clients sent nothing, or went away."""
        _log.debug("a client of the metrics got no answer: %s", sys.exc_info()[1])


def _hang_up(request: socket.socket) -> None:
    with suppress(OSError):  # It was closed meanwhile.
        request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: a scrape comes every few seconds."""


def _parsed(address: str) -> tuple[str, int]:
    """Return host and port. Raises SettingError if the address is not HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > _MOST_PORT:
        raise SettingError(f"--listen {printable(address)!r}: needs HOST:PORT, such as {DEFAULT_ADDRESS}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def exporting(monitoring: MonitoringService, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Send the values at OpenTelemetry's interval, and once at the end, while the context lasts.

    Without an endpoint in the environment nothing is sent.
    """
    if not any(environ.get(name) for name in ENDPOINTS):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    resource = Resource.create({"service.name": "tiering"}).merge(OTELResourceDetector().detect())
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False)
    meter = provider.get_meter("tiering")
    reads = _Reads(monitoring)
    for metric in monitoring.metrics:
        _observe(meter, metric, reads)
    try:
        yield
    finally:
        provider.shutdown()


class _Reads:
    """The values for an export. OpenTelemetry asks for each metric; the service keeps what it read, or its error."""

    def __init__(self, monitoring: MonitoringService) -> None:
        self._monitoring = monitoring
        self._logged: TieringError | None = None

    def values(self) -> Sequence[MetricValues]:
        """Return the values, or none if they cannot be read, with a warning for each error."""
        try:
            return self._monitoring.values()
        except TieringError as error:
            if error is not self._logged:
                _log.warning("no metrics for OpenTelemetry: %s", error)
            self._logged = error
            return ()


def _observe(meter: Any, metric: Metric, reads: _Reads) -> None:
    create = meter.create_observable_counter if metric.kind is MetricKind.COUNTER else meter.create_observable_gauge
    create(metric.shown_name, [lambda _: _observations(metric, reads)], description=metric.sentence)


def _observations(metric: Metric, reads: _Reads) -> "Iterator[Observation]":
    from opentelemetry.metrics import Observation

    for metric_values in reads.values():
        if metric_values.metric == metric:
            for labels, value in metric_values.values:
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))
