"""Events of a cluster's life on real brokers, one by one, while two platforms archive: one asks the brokers, one knows
their directories alone. What is archived is compared with what consumers read, and what is said with what is true."""

from collections.abc import Iterator

import pytest

from tests.doubles.kafka_lab.skipping import require_kafka
from tests.life import events
from tests.life.cluster import LifeCluster
from tests.life.journal import Row
from tests.life.lab import Lab, open_cluster, open_lab
from tests.life.platform import Warm, warm_commands

NAMES = iter(range(1_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LifeCluster]:
    require_kafka()
    with open_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def warm() -> Iterator[tuple[Warm, Warm]]:
    with warm_commands() as warm:
        yield warm


@pytest.fixture
def prefix() -> str:
    """Of the topics of one test, and of what its platforms include."""
    return f"life-{next(NAMES)}"


@pytest.fixture
def lab(cluster: LifeCluster, warm: tuple[Warm, Warm], prefix: str) -> Iterator[Lab]:
    """Whatever happens in a test, in the end there is no finding."""
    with open_lab(cluster, [f"{prefix}*"], warm) as lab:
        yield lab
        cluster.start_all()
    assert lab.findings == []


def codes(row: Row, command: str) -> set[int]:
    return {said[command]["code"] for said in row["platforms"].values()}


def begun(lab: Lab, name: str, brokers: list[int], *, records: int = 400, config: dict[str, str] | None = None) -> None:
    """A topic of which all that has rolled is archived."""
    lab.make_topic(name, brokers, config=config)
    lab.produce(name, records)
    row = lab.look("begun", name)
    assert (codes(row, "ready"), codes(row, "copy"), codes(row, "verify")) == ({0}, {0}, {0}), row


def test_a_follower_is_elected(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.elect_another(lab, prefix)
    lab.produce(prefix, 200)
    row = lab.look("preferred election", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


def test_a_leader_is_killed(lab: Lab, prefix: str) -> None:
    begun(lab, prefix, [1, 2, 3])
    events.kill_leader(lab, prefix)
    row = lab.look("leader killed", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row


@pytest.mark.parametrize(("then", "where"), [(20, "below"), (150, "about"), (400, "beyond")])
def test_an_unclean_election_replaces_archived_records(lab: Lab, prefix: str, then: int, where: str) -> None:
    """The source ends below, about at, or beyond the archive's end."""
    begun(lab, prefix, [1, 2], records=250, config=events.UNCLEAN)
    events.lose_records(lab, prefix, lost=250, then=then)
    row = lab.look(f"unclean election, source ends {where} the archive's end", prefix, decide=True)
    assert (codes(row, "plan"), codes(row, "copy"), codes(row, "doctor")) == ({1}, {1}, {1}), row
    lab.produce(prefix, 400)
    row = lab.look("decided", prefix)
    assert (codes(row, "copy"), codes(row, "doctor")) == ({0}, {0}), row
