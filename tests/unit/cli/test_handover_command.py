"""`./tiering handover` over brokers, disks and a store that act as real ones do."""

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from include.tiering.cli import handover
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import LeaseLostError
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.model.ownership import TopicOwner
from tests.doubles.handover_world import OLD_RETENTION, TOPIC, WorldApp, handover_world
from tests.doubles.json_shapes import checked


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=2) as made:
        yield made


@pytest.fixture
def app(world):
    return WorldApp(world)


@pytest.fixture
def run(app):
    @contextmanager
    def opened(_settings):
        yield app

    def invoke(*arguments):
        runner = CliRunner(env={"COLUMNS": "200"})
        command = ["handover", *arguments]
        return checked(command, runner.invoke(cli, command, obj=Session(open_app=opened), prog_name="./tiering"))

    return invoke


def document(result):
    return json.loads(result.stdout)


def test_a_dry_run_shows_every_check_and_changes_nothing(run, world):
    result = run(TOPIC, "--dry-run", "--json")
    assert result.exit_code == ExitCode.DONE
    shown = document(result)
    assert {one["outcome"] for one in shown["checks"]} == {"passed"}
    assert shown["segments_to_copy"] == 2
    assert [one["key"] for one in shown["guards"]] == ["local.retention.bytes", "retention.bytes", "retention.ms"]
    assert world.configs == OLD_RETENTION
    assert world.handovers.open_handovers() == []


def test_a_dry_run_that_would_be_refused_says_so(run, world):
    world.brokers.broker_defaults["remote.log.storage.system.enable"] = "false"
    result = run(TOPIC, "--dry-run")
    assert result.exit_code == ExitCode.FINDINGS
    assert "1 check refused" in result.stdout
    assert "restart the broker" in result.stdout


def test_without_a_terminal_it_asks_for_a_flag_and_then_goes_on(run, world):
    asked = run(TOPIC, "--json")
    assert asked.exit_code == ExitCode.FINDINGS
    plan = document(asked)
    assert (plan["step"], plan["state"]) == ("approval", "active")
    assert "step 4 of 13, gate" in asked.stderr
    assert plan["plan_hash"] in plan["refusal"]

    other = run(TOPIC, "--resume", "--approve-plan", "0" * 64)
    assert other.exit_code == ExitCode.FINDINGS
    assert "and not the approved one" in other.stdout

    done = run(TOPIC, "--resume", "--approve-plan", plan["plan_hash"], "--json")
    assert done.exit_code == ExitCode.DONE
    assert document(done)["state"] == "done"
    assert document(done)["approved_by"]


def test_all_at_once_with_what_is_wanted(run, world):
    result = run(TOPIC, "--approve", "--local-retention-bytes", "1000")
    assert result.exit_code == ExitCode.DONE
    assert "is handed over" in result.stdout
    assert world.configs["local.retention.bytes"] == "1000"


def test_a_second_one_is_refused_and_names_the_way_on(run):
    run(TOPIC)
    again = run(TOPIC)
    assert again.exit_code == ExitCode.FINDINGS
    assert "--resume" in again.stderr


def test_what_waits_is_worth_another_try(run, world):
    run(TOPIC)
    world.forgetful = True
    waiting = run(TOPIC, "--resume", "--approve")
    assert waiting.exit_code == ExitCode.RETRY
    assert "waits at watch" in waiting.stdout
    world.forgetful = False
    assert run(TOPIC, "--resume").exit_code == ExitCode.DONE


def test_undo_says_what_it_would_do_and_does_it(run, world):
    run(TOPIC)
    asked = run(TOPIC, "--undo")
    assert asked.exit_code == ExitCode.USAGE
    assert "restore the old values of the topic's configs" in asked.stderr
    undone = run(TOPIC, "--undo", "--approve", "--json")
    assert undone.exit_code == ExitCode.DONE
    assert document(undone)["state"] == "undone"
    assert world.configs == OLD_RETENTION


def test_an_undo_that_would_end_otherwise_than_the_person_was_told_does_nothing(run, world, monkeypatch):
    """While the question is on the screen, a run of the DAG publishes: an undo would park the topic."""
    run(TOPIC)
    asked = []

    def agrees(question):
        asked.append(question)
        world.up_to(HandoverStep.SWITCH)
        return True

    monkeypatch.setattr(handover, "is_asked_on_a_terminal", lambda: True)
    monkeypatch.setattr(handover, "agrees", agrees)
    world.handover_id = world.handovers.open_handovers()[0].handover_id
    refused = run(TOPIC, "--undo")
    assert "It ends as undone" in asked[0]
    assert refused.exit_code == ExitCode.FINDINGS
    assert "would end as parked now, and not as undone: nothing was undone" in refused.stderr
    assert world.handover.state is HandoverState.ACTIVE
    assert world.owner is TopicOwner.HANDING_OVER


def test_a_parked_topic_is_archived_again_after_a_question(run, world):
    world.begin()
    world.up_to(HandoverStep.SWITCH)
    run(TOPIC, "--undo", "--approve")
    asked = run(TOPIC, "--archive-again")
    assert asked.exit_code == ExitCode.USAGE
    assert "the platform copies and expires the topic again" in asked.stderr
    assert world.handover.state is HandoverState.PARKED
    ended = run(TOPIC, "--archive-again", "--approve", "--json")
    assert ended.exit_code == ExitCode.DONE
    assert document(ended)["state"] == "undone"
    assert world.owner is TopicOwner.PLATFORM


def test_undo_behind_the_switch_says_why_not(run, world):
    run(TOPIC)
    world.forgetful = True
    run(TOPIC, "--resume", "--approve")
    refused = run(TOPIC, "--undo", "--approve")
    assert refused.exit_code == ExitCode.FINDINGS
    assert "remote.log.delete.on.disable" in refused.stderr


@pytest.mark.parametrize(
    "flags", [("--dry-run", "--undo"), ("--resume", "--undo"), ("--approve", "--approve-plan", "x")]
)
def test_flags_that_exclude_each_other(run, flags):
    assert run(TOPIC, *flags).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("flag", ["--resume", "--undo", "--archive-again"])
def test_there_is_nothing_to_go_on_with(run, flag):
    refused = run(TOPIC, flag)
    assert refused.exit_code == ExitCode.FINDINGS
    assert "no handover of orders is under way" in refused.stderr


def test_an_unknown_topic_is_named(run):
    refused = run("unknown", "--dry-run")
    assert refused.exit_code == ExitCode.FINDINGS
    assert "the cluster has no topic unknown" in refused.stderr


def test_other_wishes_than_it_was_begun_with_are_refused(run):
    run(TOPIC, "--local-retention-bytes", "1000")
    refused = run(TOPIC, "--resume", "--local-retention-bytes", "2000")
    assert refused.exit_code == ExitCode.USAGE
    assert "begun with" in refused.stderr


@pytest.fixture
def terminal(monkeypatch):
    """A person is there. Put in answers; then it has the questions."""
    questions = []

    def agrees(question):
        questions.append(question)
        return questions.pop(0)

    monkeypatch.setattr(handover, "is_asked_on_a_terminal", lambda: True)
    monkeypatch.setattr(handover, "agrees", agrees)
    return questions


def test_on_a_terminal_the_plan_is_shown_and_asked_about(run, terminal, app):
    terminal.append(False)
    asked = run(TOPIC)
    assert asked.exit_code == ExitCode.FINDINGS
    assert "not confirmed; --resume asks again, --undo undoes the handover" in asked.stdout
    (question,) = terminal
    assert question.startswith(f"Hand {TOPIC} over to its brokers?")
    assert app.handover.latest_of(TOPIC).approval is None
    terminal[:] = [True]
    assert run(TOPIC, "--resume").exit_code == ExitCode.DONE
    assert app.handover.latest_of(TOPIC).state is HandoverState.DONE


def test_on_a_terminal_an_undo_is_asked_about(run, terminal, app):
    run(TOPIC, "--approve-plan", "0" * 64)
    terminal[:] = [False]
    assert run(TOPIC, "--undo").exit_code == ExitCode.FINDINGS
    assert terminal[0].endswith("Undo the handover?")
    assert app.handover.latest_of(TOPIC).state is HandoverState.ACTIVE
    terminal[:] = [True]
    assert run(TOPIC, "--undo").exit_code == ExitCode.DONE
    assert app.handover.latest_of(TOPIC).state.has_ended


@pytest.fixture
def other_driver(app, world, monkeypatch):
    """Another process has the lease for so many seconds; put them in."""
    until: list[float] = []
    carry_on = app.handover.carry_on

    def carried(*args, **options):
        if world.clock.monotonic() < until[0]:
            raise LeaseLostError("another driver")
        return carry_on(*args, **options)

    monkeypatch.setattr(app.handover, "carry_on", carried)
    monkeypatch.setattr(handover, "_POLL_SECONDS", 1.0)
    return until


@pytest.mark.parametrize(("seconds", "code"), [(0, ExitCode.FINDINGS), (40, ExitCode.FINDINGS), (43, ExitCode.RETRY)])
def test_the_lease_of_a_driver_that_may_have_died_is_waited_for(run, world, other_driver, seconds, code):
    other_driver.append(world.clock.monotonic() + seconds)
    done = run(TOPIC)
    assert done.exit_code == code
    assert ("another driver" in done.stderr) is (seconds > 40)
