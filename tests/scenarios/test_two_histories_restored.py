"""An archive follows the later one of two histories, and its database is set back to before the decision. The store has
copies of both: they are told apart, a person decides again, and all of it is readable as it was."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.two_histories import DIVERGENCE, WHY, Cluster, evaluate_plainly, offsets

pytestmark = pytest.mark.integration


class SetBack(Cluster):
    """What was copied behind the decision is forgotten, and so is the decision; this database owns the store again."""

    def __init__(self, directory: Path, log_start: int) -> None:
        super().__init__(directory)
        database = directory / "metadata.sqlite"
        shutil.copy(database, directory / "backup.sqlite")
        self.elect_unclean()
        self.run("plan")
        assert self.decide(35, "--approve")[0] == 0
        assert self.run("copy")[0] == 0
        assert self.run("verify")[0] == 0
        self.archived = self.read(35)[0]
        for path in directory.glob("metadata.sqlite*"):
            path.unlink()
        shutil.copy(directory / "backup.sqlite", database)
        self.elect_unclean(log_start)
        assert self.run("take-over-store", "--approve")[0] == 0

    def adopt(self, *options: str) -> tuple[int, Any]:
        return self.run("adopt", "--all", *options)

    def copies(self) -> set[str]:
        return {path.name for path in (self.directory / "store").rglob("*.log")}

    def require_two_histories(self) -> None:
        """As they were: the later one is read, the older one by its epochs, and nothing stands open."""
        assert self.run("verify")[0] == 0
        before, document = self.read(0)
        assert (offsets(before, 0), document["next_offset"]) == ([*range(0, 35, 5)], 35)
        behind, document = self.read(35)
        assert (behind, document["next_offset"]) == (self.archived, 91)
        assert document["said"][0].startswith("from offset 35 on the source's history is followed")
        old, document = self.read(40, "--epoch", "0")
        assert ({epoch for epoch, _ in old}, document["next_offset"]) == ({0, 4}, 70)
        code, document = self.run("audit")
        assert (code, document["findings"], document["refusals"]) == (0, [], [])
        assert self.text("doctor", "orders")[0] == 0


@pytest.fixture(autouse=True)
def _evaluators(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate_plainly(monkeypatch)


@pytest.mark.parametrize("log_start", [0, 56, 80])
def test_after_the_same_decision_the_copies_of_the_later_history_are_taken_back(tmp_path: Path, log_start: int) -> None:
    cluster = SetBack(tmp_path, log_start)
    before = cluster.copies()
    code, document = cluster.adopt("--dry-run")
    assert (code, document["adoptable"]) == (1, [])
    code, document = cluster.run("plan")
    (held,) = document["held_back"]
    assert (code, held["next_offset"], held["follow_from"]) == (1, 35, 35)
    assert held["detail"].startswith(DIVERGENCE)
    code, said = cluster.decide(35, "--approve")
    assert (code, said.rstrip().endswith("./tiering adopt imports what the store has from there on")) == (0, True)
    if log_start > 39:
        (held,) = cluster.run("plan")[1]["held_back"]
        assert "the store has copies of them: ./tiering adopt first" in held["detail"]
    code, document = cluster.adopt("--approve")
    adopted = [one["start_offset"] for one in document["adopted"]]
    assert (code, adopted, document["refused"]) == (0, [30, 40, 52, 65, 78], [])
    assert cluster.run("copy")[0] == 0
    assert cluster.copies() == before
    cluster.require_two_histories()


def test_before_anybody_decides_no_command_is_silent_and_nothing_is_given_up(tmp_path: Path) -> None:
    """The source's log start has passed all that differs: only the store knows of the election."""
    cluster = SetBack(tmp_path, 80)
    before = cluster.copies()
    for command in (["plan"], ["copy"]):
        code, document = cluster.run(*command)
        (held,) = document["held_back"]
        assert (code, held["follow_from"]) == (1, 35)
        assert "./tiering adopt imports after the decision" in held["detail"]
    code, said = cluster.text("skip", "orders", "--partition", "0", "--reason", WHY, "--approve")
    assert (code, "nothing to skip" in said) == (1, True)
    code, said = cluster.text("doctor", "orders")
    assert (code, DIVERGENCE in " ".join(said.split())) == (1, True)
    assert cluster.read(40)[1]["said"] == [
        f"{DIVERGENCE.replace('35..69', '40..69')}; no decision about it is recorded"
    ]
    assert cluster.text("audit", "--delete-orphans", "--approve")[0] == 1
    assert cluster.copies() == before
