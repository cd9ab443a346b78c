"""`./tiering rebuild` and `./tiering adopt`: what they ask, refuse, show and answer."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from include.tiering.cli import command
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session, author
from include.tiering.model.histories import OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.recovered_histories import RecoveredHistory
from include.tiering.model.recovered_log import LeftOut, Obstacle
from include.tiering.model.segments import Uuid
from include.tiering.recovery.adopt import AdoptionPlan, AdoptionReport, PartitionAdoption, RefusedAttempt
from include.tiering.recovery.contract import StoredSegment
from include.tiering.recovery.rebuild import ListedPartition, OtherName, RebuildPlan, RebuildReport, RebuiltPartition
from include.tiering.recovery.stored_attempts import FaultyAttempt, FoundAttempt
from tests.doubles.json_shapes import checked
from tests.doubles.segments import partition_of, segment_of, uuid

ORDERS_0 = partition_of()
LABELS = {"topic": "orders", "topic_id": str(ORDERS_0.topic_id), "partition": 0}
FOUND, NEW = StoreMarker("cluster-1", "store-1", 1), StoreMarker("cluster-1", "store-2", 2)
PLAN = RebuildPlan(FOUND, None, (ListedPartition(ORDERS_0, 2, 2_000),), ())
WHOLE = RebuiltPartition(ORDERS_0, 2, 2_000, OffsetRange(0, 199))
SEGMENT, OLDER = segment_of(ORDERS_0, 1, 100, 199), segment_of(ORDERS_0, 2, 100, 199)
DAMAGED = replace(
    WHOLE,
    holes=(OffsetRange(50, 99),),
    left_out=(LeftOut(OLDER, Obstacle.SAME_OFFSETS, SEGMENT),),
    faulty=(FaultyAttempt(FoundAttempt(OLDER.remote_log_segment_id, 300, {}), "FormatError", "not JSON"),),
    decided=(
        RecoveredHistory(
            1, 20, SeenDivergence(OffsetRange(20, 40), (0,), (3,), SeenBy.REBUILD), (OffsetRange(30, 34),)
        ),
    ),
    not_taken=2,
)
ADOPTION = AdoptionPlan((PartitionAdoption(ORDERS_0, 99, (StoredSegment(SEGMENT, 1),)),), ())
REFUSED = RefusedAttempt(uuid(7), None, None, "UnknownSegmentError", "no object in the store has this segment id")


class FakeRecovery:
    """Canned answers; `calls` holds every call that changes something."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.plan = PLAN
        self.partitions: tuple[RebuiltPartition, ...] = (WHOLE,)
        self.interrupted = False
        self.adoption = ADOPTION
        self.asked_for: list[Uuid] | None = None
        self.recovery = self

    @contextmanager
    def open(self, _settings: object) -> Iterator["FakeRecovery"]:
        yield self

    def plan_rebuild(self, *, on_listed: Callable[[int], None]) -> RebuildPlan:
        on_listed(6)
        return self.plan

    def rebuild(self, plan: RebuildPlan, *, dry_run: bool, on_examined: Callable[[int], None], **more: Any) -> Any:
        on_examined(plan.attempts)
        self.calls.append(("rebuild", {"dry_run": dry_run, "author": more["author"]}))
        marker = None if dry_run else NEW
        return RebuildReport(FOUND, marker, self.partitions, plan.other_names, self.interrupted, 1.5)

    def plan_adoption(self, ids: list[Uuid] | None) -> AdoptionPlan:
        self.asked_for = ids
        return self.adoption

    def adopt(self, plan: AdoptionPlan, run_id: str, *, author: str) -> AdoptionReport:
        self.calls.append(("adopt", {"author": author}))
        adopted = tuple(one for partition in plan.partitions for one in partition.segments)
        return AdoptionReport(adopted, plan.refused)


@pytest.fixture
def app() -> FakeRecovery:
    return FakeRecovery()


@pytest.fixture
def run(app: FakeRecovery) -> Callable[..., Result]:
    def invoke(*arguments: str) -> Result:
        session = Session(open_app=app.open)  # type: ignore[arg-type]
        done = CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments, obj=session, prog_name="./tiering")
        return checked(arguments, done)

    return invoke


def answer(monkeypatch: pytest.MonkeyPatch, yes: bool) -> list[str]:
    """Somebody sits at a terminal; the questions that are asked go to the list."""
    asked: list[str] = []

    def agrees(question: str) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr(command, "is_asked_on_a_terminal", lambda: True)
    monkeypatch.setattr(command, "agrees", agrees)
    return asked


class TestRebuild:
    def test_without_a_terminal_it_needs_to_be_agreed_in_advance(
        self, run: Callable[..., Result], app: FakeRecovery
    ) -> None:
        refused = run("rebuild")
        assert (refused.exit_code, app.calls) == (1, [])
        assert "nothing is rebuilt: without a terminal it needs --approve. There are 2 attempts" in refused.stdout
        done = run("rebuild", "--approve")
        assert (done.exit_code, app.calls) == (0, [("rebuild", {"dry_run": False, "author": author()})])
        assert "rebuilt 2 segments of 1 partition; 0 attempts left out, 0 holes." in done.stdout
        assert "of generation 2 now" in done.stdout
        assert "what manifests do not say" in done.stdout

    @pytest.mark.parametrize(("yes", "code"), [(True, 0), (False, 1)])
    def test_on_a_terminal_it_asks_and_says_what_becomes_of_the_old_database(
        self,
        run: Callable[..., Result],
        app: FakeRecovery,
        monkeypatch: pytest.MonkeyPatch,
        yes: bool,
        code: int,
    ) -> None:
        asked = answer(monkeypatch, yes)
        assert run("rebuild").exit_code == code
        assert "can never use it again" in asked[0]
        assert bool(app.calls) is yes

    def test_one_that_was_begun_is_gone_on_with(
        self, run: Callable[..., Result], app: FakeRecovery, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app.plan = replace(PLAN, begun=NEW)
        asked = answer(monkeypatch, True)
        run("rebuild")
        assert asked == ["Continue to rebuild metadata of 2 attempts (2.0 KiB) of 1 partition?"]

    def test_a_dry_run_asks_nobody(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        done = run("rebuild", "--dry-run")
        assert (done.exit_code, app.calls[0][1]["dry_run"]) == (0, True)
        assert "a rebuild would give 2 segments of 1 partition" in done.stdout
        assert run("rebuild", "--dry-run", "--approve").exit_code == 2

    @pytest.mark.parametrize(
        "changed",
        [
            {"partitions": (DAMAGED,)},
            {"partitions": (replace(WHOLE, before=True, not_taken=1),)},
            {"plan": replace(PLAN, other_names=(OtherName(uuid(1), "impostor", 3),))},
            {"interrupted": True},
        ],
        ids=str,
    )
    def test_what_a_person_has_to_look_at_is_a_finding(
        self, run: Callable[..., Result], app: FakeRecovery, changed: dict[str, Any]
    ) -> None:
        for name, value in changed.items():
            setattr(app, name, value)
        assert run("rebuild", "--approve").exit_code == 1

    def test_the_document(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        app.partitions = (DAMAGED,)
        document = json.loads(run("rebuild", "--approve", "--json").stdout)
        unknown = document.pop("not_in_manifests")
        assert len(unknown) > 10
        assert all(one["what"] and one["now"] for one in unknown)
        assert document == {
            "found": {"cluster_id": "cluster-1", "store_id": "store-1", "generation": 1},
            "marker": {"cluster_id": "cluster-1", "store_id": "store-2", "generation": 2},
            "planned_segments": 2,
            "planned_bytes": 2_000,
            "partitions": [
                {
                    **LABELS,
                    "segments": 2,
                    "bytes": 2_000,
                    "start_offset": 0,
                    "end_offset": 199,
                    "followed": [
                        {
                            "from_offset": 20,
                            "replaced": {"first_offset": 20, "last_offset": 40},
                            "replaced_epochs": [0],
                            "epochs": [3],
                            "missing": [{"first_offset": 30, "last_offset": 34}],
                        }
                    ],
                    "holes": [{"first_offset": 50, "last_offset": 99}],
                    "not_taken": 2,
                    "before": False,
                }
            ],
            "left_out": [
                {
                    **LABELS,
                    "segment_id": str(OLDER.remote_log_segment_id.id),
                    "start_offset": 100,
                    "end_offset": 199,
                    "bytes": 1_000,
                    "reason": "same-offsets",
                    "reason_message": "another copy of the same offsets has a later leader epoch or was begun later",
                    "beside": str(SEGMENT.remote_log_segment_id.id),
                }
            ],
            "failed": [
                {
                    **LABELS,
                    "segment_id": str(OLDER.remote_log_segment_id.id),
                    "start_offset": 300,
                    "error": "FormatError",
                    "message": "not JSON",
                }
            ],
            "other_names": [],
            "refusal": None,
            "interrupted": False,
            "seconds": 1.5,
        }

    def test_the_tables_name_everything(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        app.partitions = (DAMAGED,)
        shown = run("rebuild", "--approve").stdout
        for text in ("50..99", "20..40", "begun later", "not JSON", str(OLDER.remote_log_segment_id.id)):
            assert text in shown

    def test_a_long_table_says_how_long_it_is(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        app.partitions = (WHOLE,) * 201
        shown = run("rebuild", "--approve").stdout
        assert "partitions: the first 200 of 201 (--json has all)" in shown
        assert len(json.loads(run("rebuild", "--approve", "--json").stdout)["partitions"]) == 201


class TestAdopt:
    def test_it_takes_ids_or_all(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        assert run("adopt").exit_code == 2
        assert run("adopt", str(uuid(1)), "--all").exit_code == 2
        assert run("adopt", "not-an-id").exit_code == 2
        assert run("adopt", "--all", "--dry-run", "--approve").exit_code == 2
        assert (app.asked_for, app.calls) == (None, [])
        run("adopt", str(uuid(1)), str(uuid(2)), "--dry-run")
        assert app.asked_for == [uuid(1), uuid(2)]

    def test_without_a_terminal_it_needs_to_be_agreed_in_advance(
        self, run: Callable[..., Result], app: FakeRecovery
    ) -> None:
        refused = run("adopt", "--all")
        assert (refused.exit_code, app.calls) == (1, [])
        assert "nothing is adopted: without a terminal it needs --approve. 1 segment" in refused.stdout
        done = run("adopt", "--all", "--approve")
        assert (done.exit_code, app.calls) == (0, [("adopt", {"author": author()})])
        assert "adopted 1 segment, 0 refused; they are served once ./tiering verify has passed them" in done.stdout

    @pytest.mark.parametrize(("yes", "code"), [(True, 0), (False, 1)])
    def test_on_a_terminal_it_asks(
        self,
        run: Callable[..., Result],
        app: FakeRecovery,
        monkeypatch: pytest.MonkeyPatch,
        yes: bool,
        code: int,
    ) -> None:
        asked = answer(monkeypatch, yes)
        assert run("adopt", "--all").exit_code == code
        assert asked == ["Adopt 1 segment (1000 B) of 1 partition?"]
        assert bool(app.calls) is yes

    def test_with_nothing_to_adopt_nobody_is_asked(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        app.adoption = AdoptionPlan((), ())
        assert run("adopt", "--all").exit_code == 0
        app.adoption = AdoptionPlan((), (REFUSED,))
        done = run("adopt", str(uuid(7)))
        assert (done.exit_code, "no object in the store has this segment id" in done.stdout) == (1, True)

    def test_the_document(self, run: Callable[..., Result], app: FakeRecovery) -> None:
        app.adoption = replace(ADOPTION, refused=(REFUSED,))
        segment = {
            **LABELS,
            "segment_id": str(SEGMENT.remote_log_segment_id.id),
            "start_offset": 100,
            "end_offset": 199,
            "bytes": 1_000,
        }
        refused = {
            "topic": None,
            "topic_id": None,
            "partition": None,
            "segment_id": str(uuid(7)),
            "start_offset": None,
            "error": "UnknownSegmentError",
            "message": "no object in the store has this segment id",
        }
        dry = json.loads(run("adopt", "--all", "--dry-run", "--json").stdout)
        assert dry == {"adoptable": [segment], "adopted": [], "refused": [refused], "refusal": None}
        done = run("adopt", "--all", "--approve", "--json")
        assert (done.exit_code, json.loads(done.stdout)) == (1, {**dry, "adopted": [segment]})
