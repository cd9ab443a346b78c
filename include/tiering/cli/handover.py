"""`./tiering handover`: hand a topic over to its brokers, step by step, or rehearse that.

A rehearsal shows its progress. When it ends, also by Ctrl-C, it ends its broker, and without --keep it removes its
files.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from include.tiering.cli.command import (
    Approve,
    Json,
    agrees,
    amount_of,
    author,
    finish,
    is_asked_on_a_terminal,
    output_for,
    session_of,
)
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import LeaseLostError, SettingError, StateConflictError
from include.tiering.units import GIB

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.handover.contract import Handover
    from include.tiering.handover.rehearsal import Rehearsal
    from include.tiering.handover.report import HandoverView


DEFAULT_BYTES = GIB
"""The default of --rehearse-bytes."""
KafkaHome = Annotated[
    Path | None,
    typer.Option(
        "--kafka-home",
        envvar="KAFKA_HOME",
        help="Kafka distribution of the throw-away broker, with kafka-storage-VERSION-test.jar among its libs."
        " Without this option Maven fetches one.",
        metavar="DIR",
    ),
]
"""The option of every command that starts a throw-away broker."""
_POLL_SECONDS = 1.0
_LEASE_WAIT_SECONDS = 40.0


def handover(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run the checks of the first step; change nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the handover of this topic that stopped, waits or was killed.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo the handover as far as possible, or say why that cannot be done.")
    ] = False,
    archive_again: Annotated[
        bool,
        typer.Option("--archive-again", help="End a parked handover: the platform copies and expires the topic again."),
    ] = False,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Do all steps on a throw-away broker, with copies of the newest records."),
    ] = False,
    rehearse_bytes: Annotated[
        int,
        typer.Option(
            "--rehearse-bytes",
            parser=amount_of("bytes", at_least=1),
            help="Most bytes of each partition, in whole segments; the newest rolled segment is always copied.",
            metavar="BYTES",
        ),
    ] = DEFAULT_BYTES,
    kafka_home: KafkaHome = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files of a rehearsal.")] = False,
    local_retention_ms: Annotated[
        int | None,
        typer.Option(
            "--local-retention-ms",
            parser=amount_of("milliseconds"),
            help="local.retention.ms at the end, such as 7d.",
            metavar="MS",
        ),
    ] = None,
    local_retention_bytes: Annotated[
        int | None,
        typer.Option(
            "--local-retention-bytes",
            parser=amount_of("bytes"),
            help="local.retention.bytes at the end, such as 50GiB.",
            metavar="BYTES",
        ),
    ] = None,
    approve: Approve = False,
    approve_plan: Annotated[
        str | None,
        typer.Option("--approve-plan", help="Approve the plan with this hash and no other.", metavar="HASH"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Hand a topic over to its brokers: they serve, copy and expire it, with all that was copied here.

    There are thirteen steps, and --resume repeats a step that was interrupted: checks, retention overrides on the topic
    (the old values are stored first), copy, quality check, your approval, fence, checks once more, publication,
    remote.storage.enable, watch, change of owner, retention as it was, and local retention lowered in steps while
    records that are only remote are consumed and compared. A refused check stops the handover, and its text says what
    to do.

    The command asks before the topic leaves the platform; without a terminal it needs --approve, or --approve-plan with
    the hash that is shown. Until the first record is published, --undo restores the topic's configs and owner. After
    that it leaves the handover parked: nobody copies the topic, until --resume hands it over after all, or
    --archive-again makes it an archive of the platform again. Brokers then still know the published segments, so
    expiration keeps these, and what was archived above them, until ./tiering publish has published their deletion,
    which it does once the broker's log start has passed them. See docs/handover.md.

    --rehearse needs Java, and the topic's log directories or leaders: it copies each partition's newest segments into a
    temporary directory (in TMPDIR, with space for three times their size and 64 MiB), starts a broker there, hands the
    topic over to it and compares what consumers read before and afterwards. The real brokers, store and database stay
    as they are.

    Exit codes: 0 handed over, 1 refused or waiting for you, 3 worth trying again with --resume.
    """
    _require_one(dry_run=dry_run, resume=resume, undo=undo, archive_again=archive_again, rehearse=rehearse)
    _require_fitting(
        agrees=approve or approve_plan is not None,
        lowers=local_retention_ms is not None or local_retention_bytes is not None,
        rehearse=rehearse,
        keep=keep,
    )
    if approve and approve_plan is not None:
        raise SettingError("--approve and --approve-plan exclude each other")
    with session_of(ctx).opened((topic,)) as app:
        if rehearse:
            _rehearse(app, topic, rehearse_bytes, kafka_home, keep=keep, as_json=as_json)
            return
        if dry_run:
            _show_checks(app, topic, as_json=as_json)
            return
        if undo:
            _undo(app, topic, approve=approve, as_json=as_json)
            return
        if archive_again:
            _archive_again(app, topic, approve=approve, as_json=as_json)
            return
        from include.tiering.handover.contract import LocalRetention

        wanted = LocalRetention(local_retention_ms, local_retention_bytes)
        begun = _to_resume(app, topic) if resume else app.handover.begin(topic, wanted, author=author())
        if wanted != LocalRetention() and wanted != begun.wanted:
            raise SettingError(
                f"the handover was begun with --local-retention-ms {begun.wanted.local_retention_ms} and"
                f" --local-retention-bytes {begun.wanted.local_retention_bytes}: --undo it to begin with other values"
            )
        carried = _carry_on(app, begun, resume=resume)
        refusal = None
        if _waits_for_a_person(carried):
            refusal = _refusal(app, carried, approve=approve, approve_plan=approve_plan, as_json=as_json)
            if refusal is None:
                carried = _carry_on(app, carried, resume=False)
        view = _view(app, carried, refusal)
    _finish(view, as_json=as_json)


def _require_one(**chosen: bool) -> None:
    if sum(chosen.values()) > 1:
        given = " and ".join(f"--{name.replace('_', '-')}" for name, is_given in chosen.items() if is_given)
        raise SettingError(f"{given} exclude each other")


def _require_fitting(*, agrees: bool, lowers: bool, rehearse: bool, keep: bool) -> None:
    if rehearse and (agrees or lowers):
        raise SettingError(
            "--rehearse does not ask, and lowers local retention until all rolled segments are remote only: leave out"
            " --approve, --approve-plan and --local-retention-..."
        )
    if keep and not rehearse:
        raise SettingError("--keep belongs to --rehearse")


def _rehearse(app: "App", topic: str, max_bytes: int, kafka_home: Path | None, *, keep: bool, as_json: bool) -> None:
    from include.tiering.handover.rehearsal import present_rehearsal

    rehearsal = rehearsed(app, topic, max_bytes=max_bytes, kafka_home=kafka_home, keep=keep)
    finish(present_rehearsal(rehearsal), as_json=as_json)


def _to_resume(app: "App", topic: str) -> "Handover":
    found = app.handover.latest_of(topic)
    if found is None or found.state.has_ended:
        raise StateConflictError(f"no handover of {topic} is under way")
    return found


def _carry_on(app: "App", handover: "Handover", *, resume: bool) -> "Handover":
    """Run the handover. If another process has its lease, wait up to 40 s, as that process may have died."""
    from include.tiering.handover.report import step_line

    deadline = app.adapters.clock.monotonic() + _LEASE_WAIT_SECONDS
    while True:
        try:
            return app.handover.carry_on(
                handover.handover_id,
                resume=resume,
                on_step=lambda step: typer.echo(step_line(step), err=True),
                on_message=lambda line: typer.echo(f"    {line}", err=True),
            )
        except LeaseLostError:
            if app.adapters.clock.monotonic() > deadline:
                raise
            app.adapters.clock.sleep(_POLL_SECONDS)


def _waits_for_a_person(handover: "Handover") -> bool:
    from include.tiering.handover.rules import HandoverState, HandoverStep

    is_here = handover.state is HandoverState.ACTIVE and handover.step is HandoverStep.APPROVAL
    return is_here and handover.plan_hash is not None and handover.approval is None


def _refusal(app: "App", handover: "Handover", *, approve: bool, approve_plan: str | None, as_json: bool) -> str | None:
    """Return why the handover does not continue; None after an approval, which is recorded."""
    if approve_plan is not None and approve_plan != handover.plan_hash:
        return f"the plan is {handover.plan_hash} now, and not the approved one"
    if not approve and approve_plan is None:
        if not is_asked_on_a_terminal():
            return f"it needs --resume with --approve, or with --approve-plan {handover.plan_hash}"
        if not _agrees(_view(app, handover, None), as_json=as_json):
            return "not confirmed; --resume asks again, --undo undoes the handover"
    app.handover.approve(handover.handover_id, handover.plan_hash or "", author=author())
    return None


def _agrees(view: "HandoverView", *, as_json: bool) -> bool:
    from include.tiering.handover.report import present_handover

    if not as_json:
        output_for(as_json=False, is_terminal=True).show(present_handover(view))
    return agrees(
        f"Hand {view.handover.topic} over to its brokers? Kafka has no way back that keeps the remote segments."
    )


def _undo(app: "App", topic: str, *, approve: bool, as_json: bool) -> None:
    from include.tiering.handover.report import undo_sentence

    found = _to_resume(app, topic)
    planned = app.handover.possible_undo(found)
    sentence = undo_sentence(found, planned)
    if planned.ends_as is not None and not approve:
        if not is_asked_on_a_terminal():
            raise SettingError(f"without a terminal --undo needs --approve; it would: {sentence}")
        if not agrees(f"{sentence}. Undo the handover?"):
            raise typer.Exit(ExitCode.FINDINGS)
    app.handover.undo(found.handover_id, planned, on_message=lambda line: typer.echo(f"    {line}", err=True))
    from include.tiering.handover.report import present_handover

    finish(
        present_handover(_view(app, app.adapters.stores.handovers.handover(found.handover_id), None)), as_json=as_json
    )


def _archive_again(app: "App", topic: str, *, approve: bool, as_json: bool) -> None:
    from include.tiering.handover.report import present_handover
    from include.tiering.handover.rules import ARCHIVED_AGAIN

    found = _to_resume(app, topic)
    if not approve:
        if not is_asked_on_a_terminal():
            raise SettingError(f"without a terminal --archive-again needs --approve; after it {ARCHIVED_AGAIN}")
        if not agrees(f"After this, {ARCHIVED_AGAIN}. Archive {topic} again?"):
            raise typer.Exit(ExitCode.FINDINGS)
    ended = app.handover.archive_again(found.handover_id, on_message=lambda line: typer.echo(f"    {line}", err=True))
    finish(present_handover(_view(app, ended, None)), as_json=as_json)


def _show_checks(app: "App", topic: str, *, as_json: bool) -> None:
    from include.tiering.handover.checks import results_of
    from include.tiering.handover.pitfalls import CHECKS
    from include.tiering.handover.report import present_checks
    from include.tiering.handover.retention_overrides import wanted_overrides
    from include.tiering.handover.rules import HandoverStep

    cluster_metadata = app.handover.evidence(topic)
    results = results_of(CHECKS, HandoverStep.PRECONDITIONS, cluster_metadata)
    overrides = wanted_overrides(app.adapters.brokers.topic_configs(topic))
    to_copy = sum(
        len(partition.replica.waiting) for partition in cluster_metadata.partitions if partition.replica is not None
    )
    finish(present_checks(topic, results, overrides, to_copy), as_json=as_json)


def _view(app: "App", handover: "Handover", refusal: str | None) -> "HandoverView":
    from include.tiering.handover.report import HandoverView, latest_checks

    store, handover_id = app.adapters.stores.handovers, handover.handover_id
    checks = latest_checks(store, handover)
    return HandoverView(handover, checks, store.overrides(handover_id), store.seed(handover_id), refusal)


def _finish(view: "HandoverView", *, as_json: bool) -> None:
    """Show the result. If it is not `ok`, exit with RETRY if the handover waits and not for a person, else FINDINGS."""
    from include.tiering.handover.report import present_handover
    from include.tiering.handover.rules import HandoverState

    needs_a_person = view.refusal is not None or _waits_for_a_person(view.handover)
    waits = view.handover.state is HandoverState.ACTIVE and not needs_a_person
    finish(present_handover(view), as_json=as_json, otherwise=ExitCode.RETRY if waits else ExitCode.FINDINGS)


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def rehearsed(app: "App", topic: str, *, max_bytes: int, kafka_home: Path | None, keep: bool) -> "Rehearsal":
    """Rehearse with progress on standard error.

    A signal ends the broker and, unless `keep` is set, removes the files; then the exit code is 128 + signal.
    """
    from include.tiering.app.rehearse import Watcher, rehearse
    from include.tiering.broker_process.kafka_home import java, kafka_by_maven, kafka_in
    from include.tiering.cli.progress import counted_bytes

    watcher = Watcher(_echo, _step, counted_bytes)
    with ended_once(keep=keep):
        java()
        kafka = kafka_by_maven(os.environ) if kafka_home is None else kafka_in(kafka_home)
        return rehearse(app, topic, kafka, watcher, max_bytes=max_bytes, keep=keep)


def _echo(line: str) -> None:
    typer.echo(f"    {line}", err=True)


def _step(handover: "Handover") -> None:
    from include.tiering.handover.report import step_line

    typer.echo(step_line(handover), err=True)


class _EndedBy(BaseException):
    """Raised by a signal, with its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ended_once(*, keep: bool) -> Iterator[None]:
    """Raise at the first signal, so that everything is cleaned up; ignore further signals meanwhile."""

    def end(number: int, _frame: FrameType | None) -> None:
        for signal_number in _SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN)
        raise _EndedBy(number)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except _EndedBy as ended:
        typer.echo(f"stopped: the throw-away broker was ended{'' if keep else ', its files were removed'}", err=True)
        raise typer.Exit(128 + ended.number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
