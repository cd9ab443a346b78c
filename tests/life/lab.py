"""A cluster, the consumers' memory of it, and two platforms: producing, looking, and deciding."""

import random
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer

from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, client_configuration
from tests.doubles.kafka_lab.produce import CODECS, Writer
from tests.life.cluster import LifeCluster, life_cluster
from tests.life.comparison import Comparison, needs_a_person
from tests.life.journal import Journal, Row, shortened
from tests.life.oracle import Oracle, Place
from tests.life.platform import Document, Platform, Said, Warm, two_platforms

_MEMORY: Final = Path("/dev/shm")
_VALUE_BYTES: Final = 150


@dataclass
class Topic:
    """`kind`: plain, compacted or transactions. `writes` makes each batch of records another one."""

    name: str
    id: str
    kind: str = "plain"
    writes: int = 0


class Rolled(NamedTuple):
    """`end`: below it everything has rolled, is replicated and stable."""

    end: int
    leader: int


@dataclass
class Lab:
    """`findings` of all looks; none is forgiven."""

    cluster: LifeCluster
    platforms: Sequence[Platform]
    journal: Journal
    oracle: Oracle
    comparisons: dict[str, Comparison]
    topics: dict[str, Topic] = field(default_factory=dict)
    gone: list[tuple[str, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    copies: int = 0

    def make_topic(
        self, name: str, brokers: Sequence[int], *, kind: str = "plain", config: dict[str, str] | None = None
    ) -> Topic:
        topic_id = self.cluster.make_topic(name, brokers, config)
        self.topics[name] = Topic(name, topic_id, kind)
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.gone.append((name, topic.id))
        self.oracle.forget_log((topic.id, 0))
        self.cluster.delete_topic(name)

    def produce(self, name: str, count: int) -> None:
        """Then consumers read it, and the leader's directory knows that it is replicated."""
        topic = self.topics[name]
        topic.writes += 1
        if topic.kind == "compacted":
            self._keyed(topic, count)
        elif topic.kind == "transactions":
            writer = Writer(
                self.cluster.bootstrap,
                CODECS[topic.writes % len(CODECS)],
                transactional_id=f"life-{name}",
                seed=topic.writes,
                batch_bytes=2_048,
            )
            writer.transaction(name, [0], count // 2, abort=False, value_bytes=_VALUE_BYTES)
            writer.transaction(name, [0], count - count // 2, abort=True, value_bytes=_VALUE_BYTES)
        else:
            codec = CODECS[topic.writes % 2]
            writer = Writer(self.cluster.bootstrap, codec, seed=topic.writes, batch_bytes=2_048)
            writer.send(name, [0], count, value_bytes=_VALUE_BYTES)
        self.oracle.read([name])
        self.cluster.written_down(name)

    def _keyed(self, topic: Topic, count: int) -> None:
        producer = Producer({**client_configuration(self.cluster.bootstrap), "batch.size": 2_048, "linger.ms": 5})
        content = random.Random(f"{topic.name}/{topic.writes}")
        for number in range(count):
            producer.produce(topic.name, content.randbytes(_VALUE_BYTES), b"key-%d" % (number % 40), partition=0)
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0

    def observe(self, event: str, name: str, *, served: bool = True, decide: bool = False, true: str = "") -> Row:
        """Both platforms are asked, archive and are compared; `name` is the topic that the event was about.

        `served`: all that can be fetched is compared too. `decide`: what waits for a person is decided, then copied.
        """
        self.oracle.read(sorted(self.topics))
        row: Row = {"event": event, "topic": name, "true": true or self.truth(name), "platforms": {}, "findings": []}
        rolled = self._rolled()
        with ThreadPoolExecutor(max_workers=len(self.platforms)) as pool:
            asked = [
                pool.submit(self._look, platform, name, rolled, served=served, decide=decide)
                for platform in self.platforms
            ]
            for platform, done in zip(self.platforms, asked, strict=True):
                said, found = done.result()
                row["platforms"][platform.name] = said
                row["findings"] += found
        self.findings += row["findings"]
        self.journal.add(row)
        return row

    def note(self, said: Iterable[Said]) -> None:
        """Commands that ran beside an event: whatever they say, it is no fault."""
        for one in said:
            if one.is_fault:
                self.findings.append(f"{one.command}: exit code {one.code}: {one.text}")

    def truth(self, name: str) -> str:
        """Of the topic's first partition, by what consumers read."""
        if name not in self.topics:
            return "the topic is gone"
        place = (self.topics[name].id, 0)
        lineage, now = self.oracle.lineages[place], self.cluster.replicas(name)
        epochs = " ".join(f"{epoch}@{begin}" for epoch, begin in zip(lineage.epochs, lineage.begins, strict=True))
        replaced = sum(len(self.oracle.histories(place, offset)) > 1 for offset in range(lineage.end))
        words = f"log {lineage.start}..{lineage.end - 1}, led by {now.leader}, epochs {epochs or 'none'}"
        return f"{words}; {replaced} offsets had other records" if replaced else words

    def _look(
        self, platform: Platform, name: str, rolled: dict[Place, Rolled], *, served: bool, decide: bool
    ) -> tuple[Row, list[str]]:
        comparison = self.comparisons[platform.name]
        ready, planned = platform.run("ready"), platform.run("plan")
        copied, verified = platform.run("copy"), platform.run("verify")
        after, doctor = platform.run("plan"), platform.run("doctor", name)
        held = after.document.get("held_back", [])
        still = platform.run("ready") if held else ready
        everything = [ready, planned, copied, verified, after, doctor, still]
        decided: list[Document] = []
        if decide and any(needs_a_person(one) for one in held):
            decided = platform.decide(held)
            again = [platform.run("copy"), platform.run("verify"), platform.run("plan")]
            everything += again
            held = again[-1].document.get("held_back", [])
        self.copies += 2 if decided else 1
        found = [
            f"{platform.name}: {one.command}: exit code {one.code}: {one.text}" for one in everything if one.is_fault
        ]
        found += comparison.of_objects()
        if after.document and copied.document:
            for place, (rolled_end, leader) in rolled.items():
                if platform.fetches_from(leader):
                    continue  # It finds segments by segment.bytes, which is far above what has been written here.
                silent = comparison.of_silence(place, rolled_end, after.document, copied.document)
                found += [silent] if silent else []
            place = (self.topics[name].id, 0) if name in self.topics else ("", 0)
            found += comparison.of_words(place, after.document, doctor.document, still.document)
        if served and after.document:
            for topic, topic_id in [*((one.name, one.id) for one in self.topics.values()), *self.gone]:
                found += comparison.of_served(topic, (topic_id, 0), held)
        said = {
            "ready": _words(ready, _of_ready(ready, name)),
            "doctor": _words(doctor, _of_doctor(doctor)),
            "plan": _words(planned, _of_plan(planned, name)),
            "copy": _words(copied, _of_copy(copied, name)),
            "verify": {"code": verified.code, "words": ""},
            "decided": shortened("; ".join(_of_decision(one) for one in decided)),
        }
        return said, found

    def _rolled(self) -> dict[Place, Rolled]:
        """By partition, of topics that tier."""
        found = {}
        for topic in self.topics.values():
            leader = self.cluster.replicas(topic.name).leader
            if leader < 1 or "compact" in self.cluster.topic_config(topic.name)["cleanup.policy"]:
                continue
            stable = self.cluster.last_stable(topic.name, 0)
            bases = [base for base in self.cluster.bases(topic.name, leader) if base <= stable]
            if bases:
                found[topic.id, 0] = Rolled(bases[-1], leader)
        return found


@contextmanager
def open_lab(
    cluster: LifeCluster, include: Sequence[str], warm: tuple[Warm, Warm], journal: Journal | None = None
) -> Iterator[Lab]:
    """Platforms of its own over the cluster, for topics that match `include`."""
    directory = Path(tempfile.mkdtemp(prefix="tiering-life-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        platforms = two_platforms(directory / "platforms", cluster, include, warm)
        oracle = Oracle(cluster)
        comparisons = {one.name: Comparison(one, oracle) for one in platforms}
        yield Lab(cluster, platforms, journal or Journal(), oracle, comparisons)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def open_cluster() -> Iterator[LifeCluster]:
    """In memory where there is some; nothing of it is left."""
    with ExitStack() as stack:
        parent = _MEMORY if _MEMORY.is_dir() else None
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiering-life-", dir=parent))
        yield stack.enter_context(life_cluster(Path(directory)))


def _words(said: Said, words: str) -> Document:
    return {"code": said.code, "words": shortened(re.sub(r"/\S*/", "…/", words))}


def _of_ready(said: Said, name: str) -> str:
    if not said.document:
        return said.text
    checks = [one["message"] for one in said.document["checks"] if not one["ok"]]
    waits = [
        f"{one['reason_message']}: {one['detail']}"
        for one in said.document["partitions"]
        if one["topic"] == name and not one["ready"]
    ]
    return "; ".join([*checks, *waits]) or "ready"


def _of_doctor(said: Said) -> str:
    return "; ".join(one["finding"] for one in said.document.get("partitions", ())) or said.text


def _of_plan(said: Said, name: str) -> str:
    if not said.document:
        return said.text
    planned = sum(len(one["segments"]) for one in said.document["partitions"] if one["topic"] == name)
    return "; ".join([f"{planned} segments", *_held(said, name), *_errors(said)])


def _of_copy(said: Said, name: str) -> str:
    if not said.document:
        return said.text
    copied = [one for one in said.document["copied"] if one["topic"] == name]
    failed = [str(one["message"]) for one in said.document["failed"]]
    return "; ".join([f"copied {len(copied)}", *_held(said, name), *failed, *_errors(said)])


def _held(said: Said, name: str) -> list[str]:
    return [one["detail"] or one["reason_message"] for one in said.document["held_back"] if one["topic"] == name]


def _errors(said: Said) -> list[str]:
    return [str(one["message"]) for one in said.document.get("errors", ())][:1]


def _of_decision(one: Document) -> str:
    if one["code"] != 0:
        return f"{one['kind']}: refused: {one['text']}"
    if one["kind"] == "follow":
        return f"follow the source from {one['from_offset']}"
    return f"skip {one['first_offset']}..{one['last_offset']}"
