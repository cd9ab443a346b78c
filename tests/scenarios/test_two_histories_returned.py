"""After a decision for a new leader the older one is elected again: its log goes on where the first history ended. Once
a person has followed it, source and archive agree, and nothing says otherwise."""

from pathlib import Path

import pytest

from tests.doubles.two_histories import BACK, BACK_BASES, BACK_END, Cluster, evaluate_plainly

pytestmark = pytest.mark.integration

SECOND_DIVERGENCE, SECOND_BASES = [(0, 0), (6, 35), (8, 60)], (0, 10, 20, 30, 40, 52, 65, 80, 95, 110)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The new leader's history is followed from 35 on, and copied."""
    evaluate_plainly(monkeypatch)
    cluster = Cluster(tmp_path)
    cluster.elect_unclean()
    cluster.follow(35)
    return cluster


def elect_older(cluster: Cluster, log_start: int = 0) -> None:
    cluster.writes(BACK, BACK_BASES, BACK_END, log_start)


def require_agreement(cluster: Cluster) -> None:
    cluster.require_quiet()
    code, said = cluster.text("doctor", "orders")
    assert code == 0, said
    cluster.writes(BACK, (*BACK_BASES, 130), 140)
    code, document = cluster.run("copy")
    assert (code, [one["start_offset"] for one in document["copied"]]) == (0, [115])


def test_what_was_decided_on_is_what_verification_uses(cluster: Cluster) -> None:
    elect_older(cluster)
    cluster.follow(35)
    require_agreement(cluster)
    found, document = cluster.read(0)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0}, 35)
    found, document = cluster.read(35)
    assert ({epoch for epoch, _ in found}, document["next_offset"]) == ({0, 4, 10}, 115)


def test_where_the_older_leader_had_lost_its_beginning(cluster: Cluster) -> None:
    """What the archive holds of the newer leader below that was replaced as well, and answers still."""
    elect_older(cluster, 60)
    code, document = cluster.run("plan")
    (held,) = document["held_back"]
    assert (code, held["follow_from"]) == (1, 60)
    assert "offsets 35..90 are remote under other leader epochs" in held["detail"]
    cluster.follow(60)
    code, report = cluster.run("verify")
    assert (code, report["warnings"]) == (0, [])
    assert cluster.run("plan")[0] == 0
    assert cluster.text("doctor", "orders")[0] == 0


def test_an_old_directory_that_is_read_once_more_brings_nothing_back(cluster: Cluster) -> None:
    elect_older(cluster)
    cluster.follow(35)
    cluster.elect_unclean()
    assert cluster.run("copy")[0] == 1
    elect_older(cluster)
    require_agreement(cluster)


def test_a_rebuild_remembers_the_history_that_it_follows(cluster: Cluster) -> None:
    cluster.writes(SECOND_DIVERGENCE, SECOND_BASES, 120)
    cluster.follow(60)
    elect_older(cluster)
    cluster.follow(35)
    cluster.config.write_text(cluster.config.read_text().replace("metadata.sqlite", "new.sqlite"))
    code, report = cluster.run("rebuild", "--approve")
    assert (code, [one["from_offset"] for one in report["partitions"][0]["followed"]]) == (1, [60, 35])
    require_agreement(cluster)


def test_a_reader_is_told_once_which_decision_replaced_what_it_reads(cluster: Cluster) -> None:
    cluster.writes(SECOND_DIVERGENCE, SECOND_BASES, 120)
    cluster.follow(60)
    assert cluster.run("verify")[0] == 0
    found, document = cluster.read(60, "--epoch", "4")
    assert {epoch for epoch, _ in found} == {4}
    (said,) = document["said"]
    replaced = "offsets 60..69 are of the history that the source has replaced (epochs 0, 4; source: epoch 6)"
    assert said.startswith(f"{replaced}; from offset 35 on the source is followed by decision of")


def test_size_counts_the_history_that_is_followed_alone(cluster: Cluster) -> None:
    """The first history's copies of 35..69 are of leader epochs that are in the lineage again: counted twice, they
    would expire the beginning of what is within the limit."""
    elect_older(cluster)
    cluster.follow(35)
    assert cluster.run("verify")[0] == 0
    (scanned,) = cluster.run("scan")[1]["partitions"]
    sizes = [one["size_bytes"] for one in scanned["segments"]]
    assert expired(cluster, sum(sizes)) == []
    assert expired(cluster, sum(sizes) - sizes[0] + 1) == []
    assert expired(cluster, sum(sizes) - sizes[0]) == [(0, 9)]


def expired(cluster: Cluster, retention_bytes: int) -> list[tuple[int, int]]:
    """What would expire now."""
    entity = ("--entity-type", "topics", "--entity-name", "orders")
    config = f"retention.bytes={retention_bytes}"
    assert cluster.text("configs", "--alter", *entity, "--add-config", config)[0] == 0
    _, document = cluster.run("expire", "--dry-run")
    return [(one["start_offset"], one["end_offset"]) for one in document["decisions"]]
