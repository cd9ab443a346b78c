"""`./tiering metrics serve`: the endpoint that Prometheus scrapes."""

from pathlib import Path
from typing import Annotated, Final

import typer

from include.tiering.cli.command import Interrupt, session_of

metrics: Final = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
_WAIT_SECONDS: Final = 3600.0


@metrics.command(
    "serve", epilog="Example: `./tiering metrics serve --listen 0.0.0.0:9464 --token-file /run/secrets/metrics`"
)
def serve(
    ctx: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", help="Address and port; port 0 takes a free one.", metavar="HOST:PORT")
    ] = "127.0.0.1:9464",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File with the bearer token that scrapes must send; only its owner may read it.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Serve the metrics of all processes to Prometheus, at `/metrics`, until it is interrupted.

    Batches, tasks and commands write their metrics into the database about once a minute and when they end; this
    command reads them there. One such process is enough. On another address than loopback it needs --token-file.

    With `OTEL_EXPORTER_OTLP_ENDPOINT` in the environment, it also sends the metrics to that OpenTelemetry collector.
    """
    from include.tiering.monitoring.open_telemetry import exporting
    from include.tiering.monitoring.server import MetricsServer, read_token

    token = None if token_file is None else read_token(token_file)
    with (
        session_of(ctx).opened() as app,
        MetricsServer(app.monitoring.values, address=listen, token=token) as server,
        exporting(app.monitoring),
        Interrupt() as interrupt,
    ):
        typer.echo(f"metrics are at http://{server.address}/metrics")
        while not interrupt.requested:
            interrupt.wait(app.adapters.clock, _WAIT_SECONDS)
