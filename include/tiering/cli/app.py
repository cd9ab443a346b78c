"""The root command: global options, and the list of commands in the order of the help text."""

import logging
import platform
from pathlib import Path
from typing import Annotated, Final

import typer

from include.tiering import __version__
from include.tiering.cli.audit import audit
from include.tiering.cli.command import Session, TieringGroup, session_of, with_output_form
from include.tiering.cli.configs import configs, pools
from include.tiering.cli.copying import backfill, copy, plan, scan, skip
from include.tiering.cli.expiration import delete_records, expire, retention
from include.tiering.cli.handover import handover
from include.tiering.cli.metadata_sync import ingest, publish
from include.tiering.cli.operations import (
    attention,
    doctor,
    events,
    init,
    metrics,
    migrate,
    pause,
    ready,
    relocate_store,
    resume,
    segments,
    status,
    take_over_store,
    throughput,
)
from include.tiering.cli.reading import fetch
from include.tiering.cli.recovery import adopt, drill, rebuild
from include.tiering.cli.restoring import restore
from include.tiering.cli.sizes import log_dirs, sizes
from include.tiering.cli.verification import quality, verify
from include.tiering.telemetry import log_to_stderr

EXIT_CODES: Final = "Exit codes: 0 done, 1 findings or refused, 2 usage or setting, 3 worth retrying."

cli = typer.Typer(
    cls=TieringGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog=f"{EXIT_CODES}\n\nExample: `./tiering --config tiering.toml scan --topic 'orders*'`",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"./tiering {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@cli.callback()
def root(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="TOML file with settings; default: the file that TIERING_CONFIG names.", metavar="FILE"
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log each step, and show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Copy Kafka's rolled segments to remote storage; verify, count, expire and read the copies."""
    ctx.obj = Session(config, session_of(ctx).open_app)
    log_to_stderr(logging.DEBUG if debug else logging.WARNING)


COMMANDS: Final = (
    (scan, "List the segments in the log directories.", "scan --deep --topic 'orders*' --json"),
    (plan, "Show which segments a copy would copy now.", "plan --topic orders --limit-bytes 1073741824"),
    (copy, "Copy what is eligible and not remote yet.", "copy --topic orders --topic 'payments.*'"),
    (
        skip,
        "Accept offsets that the source has lost.",
        "skip orders --partition 0 --reason 'expired during the move, agreed in OPS-12'",
    ),
    (verify, "Evaluate copied segments and store a verdict.", "verify && ./tiering sizes"),
    (sizes, "Show the remote log size by partition and epoch.", "sizes --json"),
    (log_dirs, "Show local and remote bytes of each log dir.", "log-dirs --json"),
    (expire, "Delete remote segments that expire.", "expire --dry-run"),
    (retention, "Show what another retention would delete.", "retention orders --retention-ms 30d"),
    (
        delete_records,
        "Drop a partition's archived records before an offset.",
        "delete-records orders --partition 0 --before-offset 1000",
    ),
    (fetch, "Read a partition back from remote storage.", "fetch orders 0 --output /tmp/restored"),
    (restore, "Restore a topic into segment files.", "restore orders --output /var/tmp/orders --dry-run"),
    (pause, "Pause copies, deletions and publication.", "pause --topic orders"),
    (resume, "End a pause.", "resume --topic orders"),
    (doctor, "Say why a topic is not tiered.", "doctor orders"),
    (ready, "Check whether a run can start.", "ready && ./tiering copy"),
    (
        configs,
        "Show or change quotas and dynamic settings.",
        "configs --describe --entity-type brokers --entity-name 1",
    ),
    (status, "Show settings with their origin, and what runs.", "status --json"),
    (backfill, "Show what it takes to copy what waits.", "backfill --topic orders --quota 50MiB"),
    (attention, "Show what waits for a person.", "attention"),
    (segments, "Show a partition offset by offset.", "segments orders --partition 0"),
    (quality, "Show verdicts by age, and what is wrong.", "quality"),
    (events, "Show who decided what, and when.", "events --last 20"),
    (throughput, "Show bytes sent and read minute by minute.", "throughput --hours 24"),
    (pools, "Show the pools that batches run in.", "pools"),
    (
        init,
        "Write a first settings file from what is found.",
        "init --bootstrap-servers kafka-1:9092 --remote-storage s3://bucket/kafka --topic 'orders*'",
    ),
    (migrate, "Set up or upgrade the database and the store.", "migrate"),
    (handover, "Hand a topic over to its brokers.", "handover orders --dry-run"),
    (publish, "Send metadata of copied segments to brokers.", "publish orders --dry-run"),
    (ingest, "Read the metadata of brokers' segments.", "ingest --sizes"),
    (audit, "Compare the store with the metadata.", "audit --delete-orphans"),
    (rebuild, "Rebuild lost metadata from the store.", "rebuild --dry-run"),
    (take_over_store, "Make this database the store's owner.", "take-over-store"),
    (relocate_store, "Record that the store's objects were moved.", "relocate-store"),
    (adopt, "Adopt complete copies without metadata.", "adopt --all --dry-run"),
    (drill, "Try the recovery of a topic, on a throw-away broker.", "drill orders"),
)

for function, short_help, example in COMMANDS:
    cli.command(short_help=short_help, epilog=f"Example: `./tiering {example}`")(with_output_form(function))

cli.add_typer(
    metrics, name="metrics", short_help="Serve the metrics of all processes.", help="Metrics of all processes."
)
