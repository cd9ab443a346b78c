"""Commands that watch and set up: from `./tiering ready` and `status` to `take-over-store` and `metrics serve`.

`ready` checks whether a run can start. `doctor` says why a topic is not tiered. `status` shows settings with their
origins and the present work, `throughput` bytes by minute, `events` who decided what, `segments` a partition offset by
offset, and `attention` what waits for a person. `pause` and `resume` change the pause that every sender checks. `init`
writes a first settings file, and `migrate` sets a deployment up. `take-over-store` and `relocate-store` change the
owner and the place of the store. `metrics serve` is the endpoint that Prometheus scrapes.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from include.tiering.cli.command import (
    MOST_INT,
    MOST_LONG,
    AllowUnknown,
    Approve,
    Interrupt,
    Json,
    Session,
    Topics,
    amount_of,
    author,
    finish,
    is_asked_on_a_terminal,
    new_run_id,
    output_for,
    refusal_of,
    require_known_topics,
    session_of,
    warn_all,
)
from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import SettingError, TieringError
from include.tiering.model.segments import is_legal_topic_name

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.operations.status import Activity
    from include.tiering.operations.store_owner import Relocation, TakeOver
    from include.tiering.settings import TieringSettings


def ready(ctx: typer.Context, topic: Topics = None, as_json: Json = False) -> None:
    """Check what a run needs, and name the partitions that wait, with the reasons; a run copies the other partitions.

    A run needs the database, remote storage with this database's marker, log directories and cluster metadata, and no
    pause of all topics. Forgotten handovers, leases from a clock that was ahead, and which DAGs are paused in Airflow,
    are only shown. For the last, the settings need a login for Airflow.

    The exit code is 0 if a run can start, 3 if waiting can help, and 1 if a person has to act: also if a run can start,
    but not with all of the log directories in the settings. With --topic every partition of these topics must be ready.
    The command writes small objects to the store and deletes them.
    """
    from include.tiering.copying.run_scope import RunScope

    with session_of(ctx).opened() as app:
        require_known_topics(app, topic)
        readiness = app.operations.ready(scope=RunScope(tuple(topic or ())))
    from include.tiering.operations.readiness import present_ready

    needs_a_decision = any(wait.reason is not None and not wait.reason.retriable for wait in readiness.waiting)
    is_wrong = readiness.ready and bool(readiness.wrong)
    needs_a_person = not readiness.waitable or is_wrong or (bool(topic) and needs_a_decision)
    finish(
        present_ready(readiness, all_of_them=bool(topic)),
        as_json=as_json,
        otherwise=ExitCode.FINDINGS if needs_a_person else ExitCode.RETRY,
    )


def doctor(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of one topic.", metavar="TOPIC")],
    as_json: Json = False,
) -> None:
    """Say for each partition of a topic, in one line, why it is not tiered and what to do.

    The exit code is 1 if an obstacle is found or a handover is open, else 0. No plan is stored and nothing is copied.
    Like `ready`, the command writes small objects to the store and deletes them.
    """
    if not is_legal_topic_name(topic):
        raise SettingError(f"{topic!r} is no topic: 1 to 249 of letters, digits, '.', '_' and '-'")
    with session_of(ctx).opened() as app:
        require_known_topics(app, (topic,))
        diagnoses, last_drill = app.operations.diagnose(topic), app.operations.last_drill(topic)
    from include.tiering.operations.doctor import present_doctor

    finish(present_doctor(topic, diagnoses, last_drill), as_json=as_json)


def status(ctx: typer.Context, as_json: Json = False) -> None:
    """Show every setting with its value and origin, and the present work.

    The present work consists of the pauses, the running batches, the alarms, what waits and why, the quotas in force
    with their use, what all processes sent, read and deleted in the last minute, hour and day, the bytes-in rate of
    topics, and the topics that were deleted in the cluster. Secrets are masked. If the database does not answer, the
    settings are shown as they are without dynamic configs, and the exit code is 3.
    """
    from include.tiering.operations.status import present_status

    session = session_of(ctx)
    settings = session.settings()
    try:
        effective, activity = _now(session)
    except TieringError as error:
        finish(present_status(settings, None, str(error)), as_json=as_json, otherwise=code_of(error))
    else:
        finish(present_status(effective, activity), as_json=as_json)


def _now(session: Session) -> "tuple[TieringSettings, Activity]":
    """Return the settings in which dynamic configs override other sources, and the present work."""
    from include.tiering.operations.status import Activity

    with session.opened() as app:
        activity = Activity(
            app.operations.overview.now(),
            app.adapters.topic_quotas.report(),
            app.adapters.stores.topic_deletions.all(),
            app.operations.monitoring.traffic(),
        )
        return app.effective_configs.settings(), activity


Topic = Annotated[str | None, typer.Option("--topic", help="Only this topic; default: all topics.", metavar="NAME")]


def pause(ctx: typer.Context, topic: Topic = None, allow_unknown: AllowUnknown = False, as_json: Json = False) -> None:
    """Pause copies, deletions and publication of all topics, or with --topic of one topic.

    The pause takes effect within a second, in every process and on every host. Batches keep their leases and wait until
    `./tiering resume`; reads and verifications continue. A topic that was paused by its name stays paused when the
    pause of all topics ends.
    """
    from include.tiering.operations.known_names import HOW_TO_ALLOW

    with session_of(ctx).opened() as app:
        if topic is not None and not allow_unknown:
            require_known_topics(app, (topic,), how=HOW_TO_ALLOW)
        app.adapters.stores.work.pause(_checked(topic), author=author())
        paused, not_claimed = app.adapters.stores.work.paused_topics(), _claim_store(app)
    from include.tiering.operations.status import present_pause

    finish(present_pause(paused, not_claimed), as_json=as_json)


def resume(ctx: typer.Context, topic: Topic = None, as_json: Json = False) -> None:
    """End the pause of the topic that --topic names; without --topic, end the pause of all topics.

    A topic that was paused by its name stays paused when the pause of all topics ends. The command says what is still
    paused, and how to end that. The exit code is 1 if some of what was to be resumed is still paused.
    """
    with session_of(ctx).opened() as app:
        work = app.adapters.stores.work
        before = work.paused_topics()
        if topic not in before:
            require_known_topics(app, None if topic is None else (topic,))
        work.resume(_checked(topic), author=author())
        paused, not_claimed = work.paused_topics(), _claim_store(app)
    from include.tiering.operations.status import present_pause, resume_hints
    from include.tiering.runs.contract import ALL_TOPICS

    for hint in resume_hints(topic, before, paused):
        typer.echo(hint, err=True)
    still_paused = bool(paused) and (topic is None or ALL_TOPICS in paused)
    finish(present_pause(paused, not_claimed, ok=not still_paused), as_json=as_json)


def _checked(topic: str | None) -> str | None:
    from include.tiering.model.segments import is_legal_topic_name

    if topic is not None and not is_legal_topic_name(topic):
        raise SettingError(f"--topic {topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249")
    return topic


def _claim_store(app: "App") -> str | None:
    """Raise the store's generation, so that an older backup of the database is refused; return why that failed, if so.

    The pause is stored already.
    """
    from include.tiering.remote_storage.store_ownership import unclaimed_words

    if (not_claimed := app.ownership.claim_if_possible()) is not None:
        typer.echo(unclaimed_words(not_claimed), err=True)
    return not_claimed


def init(
    ctx: typer.Context,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", help="`host:port,host:port` of the brokers.", metavar="SERVERS")
    ] = None,
    remote_storage: Annotated[
        str | None,
        typer.Option("--remote-storage", help="`s3://bucket/prefix` or `file:///directory`.", metavar="URL"),
    ] = None,
    topic: Topics = None,
    output: Annotated[
        Path, typer.Option("--output", help="The settings file to write; it must not exist.", metavar="FILE")
    ] = Path("tiering.toml"),
    as_json: Json = False,
) -> None:
    """Ask a cluster and a store what they have and allow, write a settings file, and say what to run next.

    Shown are the brokers' releases, the topics with their sizes and why some cannot be copied, and each right that is
    missing: the beginning of each topic of --topic is read, and a small object is written to the store and deleted. A
    store of another deployment is not written. Nothing of the cluster is changed.

    Without an option, the value comes from the settings; so do TLS and the login, as from the variables
    TIERING_CLUSTER__SECURITY_PROTOCOL, TIERING_CLUSTER__SASL_USERNAME and TIERING_CLUSTER__SASL_PASSWORD. Passwords are
    not written to the file. The exit code is 1 if something is missing; the file is written all the same.
    """
    if output.exists():
        raise SettingError(f"{output} exists: --output names another file")
    options = {
        "TIERING_CLUSTER__BOOTSTRAP_SERVERS": bootstrap_servers,
        "TIERING_REMOTE_STORAGE__URL": remote_storage,
    }
    from include.tiering.operations.survey import present_survey, settings_text, survey

    with session_of(ctx).opened(topic, given={name: value for name, value in options.items() if value}) as app:
        adapters, settings = app.adapters, app.settings
        found = survey(settings, adapters.brokers, adapters.leader_logs, adapters.unguarded_storage)
    output.write_text(settings_text(settings, found))
    finish(present_survey(found, output.absolute(), settings), as_json=as_json)


def migrate(ctx: typer.Context, as_json: Json = False) -> None:
    """Set up or upgrade this deployment: database tables, identity of the store, and its marker.

    Run the command once before the first copy and after each update; repeating it is harmless. The marker binds the
    store's prefix to this database: a store that belongs to another database is refused.
    """
    with session_of(ctx).opened() as app:
        marker = app.set_up.migrate()
    from include.tiering.operations.set_up import present_set_up

    finish(present_set_up(marker), as_json=as_json)


def take_over_store(
    ctx: typer.Context,
    nothing_published: Annotated[
        bool,
        typer.Option(
            "--nothing-published",
            help="Declare that no segment was published to brokers but those that this database has records of: then"
            " expiration waits for no ingest.",
        ),
    ] = False,
    approve: Approve = False,
    as_json: Json = False,
) -> None:
    """Make a restored or copied database the owner of the store, after another database has used it.

    The command audits the store first and shows the differences to this database: `adoptable` copies that the database
    does not know, which `./tiering adopt` adopts, and each missing object of a segment as `dangling-reference`.
    It also shows the retention, deletion limits and pauses in this database, and the time of its newest event. Then it
    asks, unless this database owns the store, and raises the store's generation. From then on the other database is
    refused. If the store has copies of a later history, the divergence is recorded; see `./tiering plan`.

    This database may not know what the other one published to brokers. So nothing expires in it before `./tiering
    ingest` has read all records of `__remote_log_metadata`: what brokers know stays. If there was no handover, or the
    cluster has no such topic, say so with --nothing-published, also later. The same is the way out if records of that
    topic were deleted before they were read, and no segment was published in them.

    The store must have the identity that this database records; its generation may differ. For another store use
    `./tiering rebuild`. Without a terminal the command needs --approve.
    """
    with session_of(ctx).opened() as app:
        from include.tiering.cli.progress import listing_progress

        with listing_progress() as on_listed:
            planned, marker = app.store_owner.plan_take_over(new_run_id(), on_listed=on_listed), None
        refusal = _refusal_to_take_over(planned, nothing_published=nothing_published, approve=approve, as_json=as_json)
        if refusal is None:
            marker = app.store_owner.take_over(planned.found, author=author(), nothing_published=nothing_published)
            # If the store has a later history than the metadata, this is recorded before anything more is copied.
            app.recovery.plan_adoption()
    from include.tiering.operations.store_owner import present_take_over

    shown = present_take_over(planned, marker, refusal, nothing_published=nothing_published)
    finish(shown, as_json=as_json)


def _refusal_to_take_over(planned: "TakeOver", *, nothing_published: bool, approve: bool, as_json: bool) -> str | None:
    from include.tiering.operations.store_owner import present_take_over, take_over_question

    if approve or (planned.is_ours and not nothing_published):
        return None
    if planned.is_ours:
        return refusal_of(
            "Do brokers know only segments of this store that this database has records of? Any others could expire"
        )
    if is_asked_on_a_terminal() and not as_json:
        output_for(as_json=False, is_terminal=True).show(present_take_over(planned, None, None))
    return refusal_of(take_over_question(planned))


def relocate_store(ctx: typer.Context, approve: Approve = False, as_json: Json = False) -> None:
    """Record that objects were moved: change the URL, layout or key prefix of a store that has segments.

    Move the objects first, then set `remote_storage.url`, `layout` and `key_prefix` to where they are. This command
    checks objects, lengths and checksums of segments there: the oldest and the newest of each partition, and others up
    to at least 200 in all, if there are so many. If one segment is missing or different, nothing is changed. Until the
    command has succeeded, other commands that change the store are refused. The command asks first; without a terminal
    it needs --approve.
    """
    with session_of(ctx).opened() as app:
        planned, marker = app.store_owner.plan_relocation(), None
        refusal = _refusal_to_relocate(planned, approve=approve)
        if refusal is None:
            marker = app.store_owner.relocate(planned, author=author())
    from include.tiering.operations.store_owner import present_relocation

    finish(present_relocation(planned, marker, refusal), as_json=as_json)


def _refusal_to_relocate(planned: "Relocation", *, approve: bool) -> str | None:
    from include.tiering.operations.store_owner import relocation_question

    if not planned.proof.holds:
        return planned.objection
    if approve or planned.stored == planned.place:
        return None
    return refusal_of(relocation_question(planned))


metrics: Final = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
_WAIT_SECONDS: Final = 3600.0


@metrics.command(
    "serve", epilog="Example: `./tiering metrics serve --listen 0.0.0.0:9464 --token-file /run/secrets/metrics`"
)
def serve_metrics(
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
    command reads them there. One such process is enough. On any address but loopback it needs --token-file.

    With `OTEL_EXPORTER_OTLP_ENDPOINT` in the environment, it also sends the metrics to that OpenTelemetry collector.
    """
    from include.tiering.operations.exporters import MetricsServer, exporting, read_token

    token = None if token_file is None else read_token(token_file)
    with (
        session_of(ctx).opened() as app,
        MetricsServer(app.operations.monitoring.values, address=listen, token=token) as server,
        exporting(app.operations.monitoring),
        Interrupt() as interrupt,
    ):
        typer.echo(f"metrics are at http://{server.address}/metrics")
        while not interrupt.requested:
            interrupt.wait(app.adapters.clock, _WAIT_SECONDS)


def events(
    ctx: typer.Context,
    last: Annotated[int, typer.Option("--last", min=1, max=10_000, help="How many at most.", metavar="N")] = 50,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only those about this topic, by its exact name.", metavar="TOPIC")
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(
            "--since",
            help="Only those of the last time of this length, such as 2h or 7d.",
            metavar="DURATION",
            parser=amount_of("milliseconds", at_least=1),
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the last events, the newest first: what was decided and found, by whom.

    Among them are pauses, sizes of pools, approvals and withdrawals of plans, owners of topics, skipped offsets and
    accepted findings. Changes of configs have a history of their own: `./tiering configs --describe --history`.

    Events about a topic are those about it, or about one of its partitions. Those about a run, a pool, the store or all
    topics are not among them.
    """
    with session_of(ctx).opened() as app:
        found = app.adapters.stores.events.newest(last, topic=topic, within_ms=since)
        if topic is not None and not found:
            warn_all(app.operations.names.check_past_topic(topic))
    from include.tiering.operations.events import present_events

    finish(present_events(found, last), as_json=as_json)


def attention(ctx: typer.Context, as_json: Json = False) -> None:
    """Show what waits for a person, each with its entry of the runbook.

    These are plans of deletions and handovers that wait for an answer in Airflow, with who cut the retention; segments
    that failed their verification; open findings of audits; partitions that no later run takes without a decision, or
    whose transaction is open for longer than brokers allow by default; handovers without progress; and pools without
    slots. Held partitions are those of the last plan of all topics, findings those of the last audit. The exit code is
    1 if anything waits.
    """
    with session_of(ctx).opened() as app:
        found = app.operations.attention.now()
    from include.tiering.operations.attention import present_attention

    finish(present_attention(found), as_json=as_json)


def segments(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of one topic.", metavar="TOPIC")],
    partition: Annotated[int, typer.Option("--partition", min=0, max=MOST_INT, help="Its partition.", metavar="N")] = 0,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="If several topics have or had this name.", metavar="ID")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", min=0, max=MOST_LONG, help="Only segments that start below it.", metavar="OFFSET"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a partition offset by offset: what waits, is remote, verified, expired, skipped or missing.

    The newest 200 remote segments are shown, deleted ones with a tombstone included, and what the newest plan of a copy
    found to wait; `--before` goes back. Nothing is read but the database. The exit code is 1 if offsets are missing
    without a decision, or a segment failed.
    """
    with session_of(ctx).opened() as app:
        found = app.operations.timeline.of(topic, partition, topic_id=topic_id, before=before)
    from include.tiering.operations.timeline import present_timeline

    finish(present_timeline(found), as_json=as_json)


def throughput(
    ctx: typer.Context,
    hours: Annotated[int, typer.Option("--hours", min=1, max=14 * 24, help="How far back.", metavar="N")] = 6,
    as_json: Json = False,
) -> None:
    """Show what all processes sent, read and deleted minute by minute; minutes without traffic are left out.

    The JSON also has the total copy quota over that time, and who changed quotas and sizes of pools when.
    """
    with session_of(ctx).opened() as app:
        found = app.operations.throughput.last_hours(hours)
    from include.tiering.operations.throughput import present_throughput

    finish(present_throughput(found), as_json=as_json)
