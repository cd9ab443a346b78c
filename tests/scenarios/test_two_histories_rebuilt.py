"""An archive of two histories loses its database. The decision is nowhere in the store: nothing of either history is
lost, and a person decides again."""

from pathlib import Path

import pytest

from tests.doubles.two_histories import Cluster, evaluate_plainly

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    evaluate_plainly(monkeypatch)
    return Cluster(tmp_path)


def stored(cluster: Cluster) -> set[str]:
    store = cluster.directory / "store"
    return {str(path.relative_to(store)) for path in store.rglob("*.log")}


def rebuild(cluster: Cluster) -> int:
    """The database is lost; another one is made from the store."""
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    return cluster.text("rebuild", "--approve")[0]


def test_a_divergence_that_nobody_decided_about_is_seen_again(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    before = stored(cluster)
    assert rebuild(cluster) == 0
    code, document = cluster.run("plan")
    (held,) = document["held_back"]
    assert (code, held["follow_from"]) == (1, 35)
    assert cluster.run("copy")[0] == 1
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    assert before < stored(cluster)
    assert {epoch for epoch, _ in cluster.read(35)[0]} == {6}
    assert {epoch for epoch, _ in cluster.read(40, "--epoch", "0")[0]} == {0, 4}


def test_two_histories_in_the_store_are_not_served_as_one(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    assert cluster.decide(35, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert cluster.run("verify")[0] == 0
    before = stored(cluster)
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    code, report = cluster.run("rebuild", "--approve")
    (rebuilt,) = report["partitions"]
    assert (code, rebuilt["holes"], report["left_out"]) == (1, [], [])
    assert [(one["from_offset"], one["replaced_epochs"]) for one in rebuilt["followed"]] == [(35, [0, 4])]
    assert cluster.run("verify")[0] == 0
    require_one_history(cluster, from_offset=35)
    assert stored(cluster) == before


def require_one_history(cluster: Cluster, from_offset: int) -> None:
    """As after a person's decision, and the archive goes on."""
    for command in ("plan", "copy"):
        assert cluster.run(command)[0] == 0
    assert cluster.text("doctor", "orders")[0] == 0
    behind, document = cluster.read(from_offset)
    assert ({epoch for epoch, _ in behind}, document["next_offset"]) == ({6}, 91)
    old, document = cluster.read(40, "--epoch", "0")
    assert ({epoch for epoch, _ in old}, document["next_offset"]) == ({0, 4}, 70)


def test_what_the_source_no_longer_has_when_it_is_followed_is_answered_by_the_old_history(cluster: Cluster) -> None:
    cluster.elect_unclean()
    cluster.run("plan")
    cluster.elect_unclean(80)
    assert cluster.decide(80, "--approve")[0] == 0
    assert cluster.run("copy")[0] == 0
    assert rebuild(cluster) == 1
    assert cluster.run("verify")[0] == 0
    found, document = cluster.read(33)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0, 4}, 70)
    # The source's own history was cut at its log start, so nothing in the store says that it has replaced these.
    assert document["said"] == []
    require_one_history(cluster, from_offset=80)
