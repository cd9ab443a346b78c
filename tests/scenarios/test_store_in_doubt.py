"""The store has the right marker, and not what was stored there: nothing fails, nothing is copied again, until the
right one is back or a person says that it is lost. What is lost singly fails and is copied again, as ever."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from include.tiering.app import open_app
from include.tiering.app.adapters import Adapters
from include.tiering.cli.app import cli
from include.tiering.cli.command import author
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import CopyPlan, HeldBack
from include.tiering.database.schema import events
from include.tiering.errors import RemoteAccessDeniedError, RemoteStorageError, StoreInDoubtError
from include.tiering.model.segments import RemoteLogSegmentId, Verdict
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.verification import verify_planned, verify_segments
from include.tiering.verification.suites import PARTITION_RULES
from tests.doubles.archive import Archive, settings_of
from tests.doubles.plain_evaluator import PlainEvaluator

pytestmark = pytest.mark.integration

Command = Callable[..., tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def plain_evaluators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are the product's; who applies them is not the subject here."""
    monkeypatch.setattr(Adapters, "segment_evaluator", lambda *_: PlainEvaluator())
    monkeypatch.setattr(Adapters, "partition_evaluator", lambda *_: PlainEvaluator(PARTITION_RULES))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """All is copied and passed: ten segments in three partitions."""
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as opened:
        assert opened.verification.verify_run().failed == ()
    return archive


@pytest.fixture
def app(archive: Archive) -> Command:
    """Runs a command with --json; its exit code, its document, and what it said beside it."""

    def run(*arguments: str) -> tuple[int, Any, str]:
        done = CliRunner().invoke(cli, ["--config", str(archive.config), *arguments, "--json"], prog_name="./tiering")
        return done.exit_code, json.loads(done.stdout) if done.stdout else None, done.stderr

    return run


class EmptyDirectory:
    """Another directory is under the store's path, with a copy of its marker."""

    def __init__(self, archive: Archive) -> None:
        self.store, self.away = archive.directory / "store", archive.directory / "away"

    def goes_wrong(self) -> None:
        self.store.rename(self.away)
        self.store.mkdir()
        shutil.copy(self.away / MARKER_KEY, self.store)

    def is_put_right(self) -> None:
        shutil.rmtree(self.store)
        self.away.rename(self.store)


class OtherKeys(EmptyDirectory):
    """The objects are there, and not under the keys that the settings lead to."""

    def goes_wrong(self) -> None:
        for directory in [one for one in self.store.iterdir() if one.is_dir()]:
            directory.rename(self.store / f"tiered-{directory.name}")

    def is_put_right(self) -> None:
        for directory in self.store.glob("tiered-*"):
            directory.rename(self.store / directory.name.removeprefix("tiered-"))


@pytest.fixture(params=[EmptyDirectory, OtherKeys])
def place(request: pytest.FixtureRequest, archive: Archive) -> EmptyDirectory:
    return request.param(archive)


def verdicts(archive: Archive) -> list[Verdict]:
    with archive.open() as opened:
        rows = [
            row
            for p in opened.adapters.stores.metadata.partitions()
            for row in opened.adapters.stores.metadata.list_segments(p)
        ]
        return [row.verdict for row in rows if row.metadata.is_finished]


def numbered(archive: Archive) -> dict[int, list[RemoteLogSegmentId]]:
    """FINISHED segments by number of their partition, in order."""
    return {p.partition: [one.remote_log_segment_id for one in found] for p, found in archive.remote().items()}


def lose(archive: Archive, *lost: RemoteLogSegmentId) -> None:
    for segment_id in lost:
        for path in (archive.directory / "store").rglob(f"*{segment_id.id}*"):
            path.unlink()


def looked_ahead(archive: Archive) -> CopyPlan:
    """A plan that is not stored: one that is would raise the generation in the marker of the wrong place."""
    with archive.open() as opened:
        return opened.copying.plan("ahead", dry_run=True)


def failed_ids(archive: Archive) -> set[RemoteLogSegmentId]:
    with archive.open() as opened:
        return {copy.segment_id for copy in opened.adapters.stores.failed_copies.all()}


@pytest.mark.parametrize(
    "flags", [["--all"], ["--all", "--depth", "deep"], ["--all", "--partition", "1"]], ids=" ".join
)
def test_nothing_fails_where_nothing_is(
    archive: Archive, app: Command, place: EmptyDirectory, flags: list[str]
) -> None:
    place.goes_wrong()
    code, _, said = app("verify", *flags)
    assert verdicts(archive) == [Verdict.PASSED] * 10
    assert code == 1
    assert "the store is probably not complete or not the right one" in said
    assert "--missing-is-real" in said
    assert looked_ahead(archive).segments == 0
    place.is_put_right()
    code, document, _ = app("verify", *flags)
    assert (code, document["failed"]) == (0, [])
    archive.require_served()


@pytest.mark.parametrize("group", [1, 2])
def test_nothing_fails_group_by_group(
    archive: Archive, app: Command, place: EmptyDirectory, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (verify_segments, verify_planned):
        monkeypatch.setattr(module, "GROUP_SEGMENTS", group)
    place.goes_wrong()
    assert app("verify", "--all")[0] == 1
    with archive.open() as opened, pytest.raises(StoreInDoubtError, match="probably not complete or not the right one"):
        opened.verification.verify_run("copy-1")
    assert verdicts(archive) == [Verdict.PASSED] * 10


def test_the_gate_of_a_copy_passes_nothing_and_fails_nothing_there(archive: Archive, place: EmptyDirectory) -> None:
    place.goes_wrong()
    with archive.open() as opened, pytest.raises(StoreInDoubtError):
        opened.verification.verify_run("copy-1")
    assert verdicts(archive) == [Verdict.PASSED] * 10


@pytest.mark.parametrize("lost", [[(0, 2)], [(0, 1), (0, 3)], [(0, 0), (1, 0), (1, 2)], [(0, 1), (0, 2), (0, 5)]])
def test_what_is_lost_singly_fails_and_is_copied_again(
    archive: Archive, app: Command, lost: list[tuple[int, int]]
) -> None:
    gone = [numbered(archive)[partition][place] for partition, place in lost]
    lose(archive, *gone)
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(gone)
    assert verdicts(archive).count(Verdict.FAILED) == len(gone)
    assert app("verify", "--failed")[0] == 1
    archive.copy()
    assert app("verify")[0] == 0
    assert verdicts(archive) == [Verdict.PASSED] * 10
    archive.require_served()


def test_a_lost_one_that_is_looked_at_alone_fails_if_another_one_is_there(archive: Archive, app: Command) -> None:
    first, *others = numbered(archive)[0]
    lose(archive, first)
    with archive.open() as opened:
        opened.adapters.stores.metadata.expire_verdicts(0, at_most=500)
    assert app("verify", "--partition", "0", "--limit-bytes", "1")[0] == 1
    assert failed_ids(archive) == {first}
    assert others


def test_one_that_is_looked_at_alone_does_not_fail_if_no_other_one_is_there(
    archive: Archive, app: Command, place: EmptyDirectory
) -> None:
    place.goes_wrong()
    code, _, said = app("verify", "--all", "--limit-bytes", "1")
    assert (code, failed_ids(archive)) == (1, set())
    assert "nor is" in said


def test_more_than_could_be_lost_singly_is_lost_if_a_person_says_so(archive: Archive, app: Command) -> None:
    gone = numbered(archive)[0][:4]
    lose(archive, *gone)
    code, _, said = app("verify", "--all")
    assert (code, failed_ids(archive)) == (1, set())
    assert "4 of 10 segments that were checked lack objects in the store (orders-0: 4 of 6" in said
    assert app("verify", "--all", "--missing-is-real")[0] == 1
    assert failed_ids(archive) == set()
    code, _, said = app("verify", "--all", "--missing-is-real", "--approve")
    assert (code, failed_ids(archive)) == (1, set(gone))
    with archive.open() as opened, opened.adapters.engine.connect() as connection:
        query = select(events.c.detail, events.c.author).where(events.c.kind == "losses confirmed")
        ((detail, who),) = connection.execute(query).all()
    assert "4 of 10 segments" in detail
    assert who == author()
    assert f"recorded with your name as lost: {detail}" in said
    archive.copy()
    assert app("verify")[0] == 0
    archive.require_served()


def test_the_setting_says_how_many_may_be_lost_singly(archive: Archive, app: Command) -> None:
    archive.set_default(tiering_verify_max_missing_segments=4)
    gone = numbered(archive)[0][:4]
    lose(archive, *gone)
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(gone)


def test_what_is_lost_day_after_day_adds_up(archive: Archive, app: Command) -> None:
    gone = numbered(archive)[0][:5]
    for one in gone[:3]:
        lose(archive, one)
        assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(gone[:3])
    lose(archive, gone[3])
    code, _, said = app("verify", "--all")
    assert (code, failed_ids(archive)) == (1, set(gone[:3]))
    assert "(orders-0: 1 of 3, and 3 before), 3 more failed for the same reason before" in said
    assert "--missing-is-real" in said
    assert app("verify", "--all", "--missing-is-real", "--approve")[0] == 1
    assert failed_ids(archive) == set(gone[:4])


def test_what_is_replaced_or_given_up_counts_no_more(archive: Archive, app: Command) -> None:
    first, second, third, *_, last = numbered(archive)[0]
    lose(archive, first, second, third)
    assert app("verify", "--all")[0] == 1
    archive.copy()
    assert app("verify")[0] == 0
    others = [one for one in numbered(archive)[0] if one != last][-3:]
    lose(archive, *others)
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(others)
    with archive.open() as opened:
        opened.adapters.stores.failed_copies.give_up(others[0], reason="lost", author="test")
    lose(archive, last)
    assert app("verify", "--all")[0] == 1
    assert last in failed_ids(archive)


def test_one_after_the_other_is_not_all_of_a_partition(archive: Archive, app: Command) -> None:
    """However many of a larger one may be lost singly."""
    archive.set_default(tiering_verify_max_missing_segments=9)
    number, gone = min(numbered(archive).items(), key=lambda item: len(item[1]))
    for one in gone[:-1]:
        lose(archive, one)
        assert app("verify", "--all", "--partition", str(number))[0] == 1
    lose(archive, gone[-1])
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(gone[:-1])


def test_a_few_of_each_of_many_partitions_are_not_lost_singly(archive: Archive, app: Command) -> None:
    archive.set_default(tiering_verify_max_missing_total=3)
    gone = [one for segments in numbered(archive).values() for one in segments[:2]]
    lose(archive, *gone)
    code, _, said = app("verify", "--all")
    assert (code, failed_ids(archive)) == (1, set())
    assert "4 of 10 segments that were checked lack objects in the store" in said
    assert "3 in all" in said
    archive.set_default(tiering_verify_max_missing_total=4)
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == set(gone)


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("depth", ["shallow", "deep"])
@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        ("log", emptied),
        ("indexes", removed),
        ("indexes", emptied),
        ("rsm-manifest", removed),
        ("rsm-manifest", emptied),
    ],
)
def test_a_mirror_that_is_under_way_fails_nothing(
    archive: Archive, app: Command, suffix: str, change: Callable[[Path], None], depth: str
) -> None:
    """Objects of one kind are not there yet, or empty: of all segments, and of one alone in the end."""
    paths = sorted((archive.directory / "store").rglob(f"*.{suffix}"))
    assert len(paths) == 10
    were = {path: path.read_bytes() for path in paths}
    for path in paths:
        change(path)
    code, _, said = app("verify", "--all", "--depth", depth)
    assert (code, failed_ids(archive)) == (1, set())
    assert "the store is probably not complete or not the right one" in said
    assert verdicts(archive) == [Verdict.PASSED] * 10
    for path, content in were.items():
        path.write_bytes(content)
    assert app("verify", "--all", "--depth", depth)[0] == 0
    change(paths[0])
    assert app("verify", "--all", "--depth", depth)[0] == 1
    assert len(failed_ids(archive)) == 1
    archive.copy()
    assert app("verify")[0] == 0


@pytest.mark.parametrize("depth", ["shallow", "deep"])
@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_objects_that_are_there_and_cannot_be_read_fail_nothing(
    archive: Archive, app: Command, monkeypatch: pytest.MonkeyPatch, suffix: str, depth: str
) -> None:
    """As of a bucket whose key in KMS is disabled: length and checksum are shown, and no byte."""
    read = FileObjectStore.read

    def refused(store: FileObjectStore, key: str, *positions: Any, **options: Any) -> Any:
        if key.endswith(f".{suffix}"):
            raise RemoteStorageError(f"cannot read {key}: the store answered KMS.DisabledException (400)")
        return read(store, key, *positions, **options)

    with monkeypatch.context() as patched:
        patched.setattr(FileObjectStore, "read", refused)
        code, _, said = app("verify", "--all", "--depth", depth)
        assert (code, failed_ids(archive)) == (1, set())
        assert "the store is probably not complete or not the right one" in said
        assert verdicts(archive) == [Verdict.PASSED] * 10
        assert looked_ahead(archive).segments == 0
    assert app("verify", "--all", "--depth", depth)[0] == 0


def test_a_single_segment_that_cannot_be_read_is_not_lost(
    archive: Archive, app: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor copied again, so that nothing deletes it. The policy denies one object; another segment is really lost."""
    denied, *_, lost = numbered(archive)[0]
    read = FileObjectStore.read

    def refused(store: FileObjectStore, key: str, *positions: Any, **options: Any) -> Any:
        if str(denied.id) in key and key.endswith(".indexes"):
            raise RemoteAccessDeniedError(f"cannot read {key}: the store answered AccessDenied (403)")
        return read(store, key, *positions, **options)

    lose(archive, lost)
    with monkeypatch.context() as patched:
        patched.setattr(FileObjectStore, "read", refused)
        for flags in (["--all"], ["--all", "--partition", "0", "--limit-bytes", "1"]):
            code, _, said = app("verify", *flags)
            assert (code, failed_ids(archive)) == (1, set())
            assert f"first {denied.id}: " in said
            assert "AccessDenied (403)" in said
            assert "--missing-is-real" in said
        assert looked_ahead(archive).segments == 0
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == {lost}


def test_logs_of_full_length_with_other_content_are_damage_at_once(archive: Archive, app: Command) -> None:
    for path in (archive.directory / "store").rglob("*.log"):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert app("verify", "--all")[0] == 1
    assert verdicts(archive) == [Verdict.FAILED] * 10


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        ("log", emptied),
        ("log", lambda path: path.write_bytes(path.read_bytes()[:-1])),
        ("indexes", removed),
        ("rsm-manifest", removed),
        ("rsm-manifest", emptied),
        ("rsm-manifest", lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2"))),
    ],
)
def test_a_witness_that_is_not_whole_proves_nothing(
    archive: Archive, app: Command, suffix: str, change: Callable[[Path], None]
) -> None:
    (old, *_) = numbered(archive)[0]
    lose(archive, old)
    assert app("verify", "--all")[0] == 1
    for path in (archive.directory / "store").rglob(f"*.{suffix}"):
        change(path)
    (held,) = looked_ahead(archive).held_back
    assert held.reason is HeldBack.STORE_IN_DOUBT
    assert "which passed: it has " in held.detail


def test_a_segment_of_which_the_log_is_there_alone_needs_a_witness(archive: Archive, app: Command) -> None:
    """It does not show that the store is the right one: a mirror begins with something."""
    (old, *_) = numbered(archive)[0]
    manifests = sorted((archive.directory / "store").rglob("*.rsm-manifest"))
    next(path for path in manifests if str(old.id) in path.name).unlink()
    assert app("verify", "--all")[0] == 1
    assert failed_ids(archive) == {old}
    for path in manifests:
        path.unlink(missing_ok=True)
    (held,) = looked_ahead(archive).held_back
    assert held.reason is HeldBack.STORE_IN_DOUBT


def test_a_replacement_is_held_back_while_another_segment_is_missing_too(
    archive: Archive, app: Command, place: EmptyDirectory
) -> None:
    (old, *_) = numbered(archive)[0]
    lose(archive, old)
    assert app("verify", "--all")[0] == 1
    place.goes_wrong()
    (held,) = looked_ahead(archive).held_back
    assert held.reason is HeldBack.STORE_IN_DOUBT
    assert "check that the store's disk is mounted" in held.detail
    assert (len(verdicts(archive)), failed_ids(archive)) == (10, {old})
    line = app("doctor", "orders")[1]["partitions"][0]
    assert "docs/runbook.md" in line["advice"]
    place.is_put_right()
    assert archive.copy().held_back == ()
    assert old not in numbered(archive)[0]


def test_a_replacement_that_was_planned_before_the_place_went_wrong_supersedes_nothing(
    archive: Archive, app: Command, place: EmptyDirectory
) -> None:
    (old, *_) = numbered(archive)[0]
    lose(archive, old)
    assert app("verify", "--all")[0] == 1
    with open_app(settings_of(archive.config)) as opened:
        assert opened.copying.plan("planned").segments == 1
    place.goes_wrong()
    with open_app(settings_of(archive.config)) as opened:
        (failure,) = opened.copying.run_batch("planned", "planned/0").failed
    assert failure.item.error == "StoreInDoubtError"
    assert numbered(archive)[0][0] == old
    assert failed_ids(archive) == {old}


def test_a_damaged_segment_is_copied_again_whatever_else_is_missing(archive: Archive, app: Command) -> None:
    """It shows that the store is the right one."""
    old, *others = numbered(archive)[1]
    (log,) = (archive.directory / "store").rglob(f"*{old.id}.log")
    log.write_bytes(log.read_bytes()[:-1])
    assert app("verify", "--partition", "1", "--all")[0] == 1
    assert failed_ids(archive) == {old}
    lose(archive, others[-1])
    steps: list[CopyStep] = []
    with open_app(settings_of(archive.config), observe=lambda step, *_: steps.append(step)) as opened:
        opened.copying.plan("again")
        assert opened.copying.run_batch("again", "again/0").failed == ()
    assert CopyStep.FINISHED in steps
    assert old not in numbered(archive)[1]
