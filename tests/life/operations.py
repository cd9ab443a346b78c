"""What people do with the platforms, and what happens to their processes and databases."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.doubles.kafka_lab.cluster import wait_until
from tests.life.lab import Lab
from tests.life.platform import Document, Platform, Running

_HELD: Final = "held"


@dataclass(frozen=True)
class Backup:
    """Of one platform's database, and of what was decided until then."""

    platform: Platform
    path: Path
    decisions: tuple[Document, ...]

    def put_back(self) -> None:
        self.platform.put_back(self.path)
        self.platform.decisions[:] = self.decisions


def back_up(lab: Lab) -> list[Backup]:
    backups = []
    for platform in lab.platforms:
        path = platform.directory / "backup.sqlite"
        path.unlink(missing_ok=True)
        platform.back_up(path)
        backups.append(Backup(platform, path, tuple(platform.decisions)))
    return backups


def take_over(lab: Lab) -> dict[str, int]:
    """As the runbook says of a database that was put back; the exit code of the audit at the end, by platform.

    What is stored twice since, or cannot be adopted, is left there: somebody accepts it.
    """
    codes = {}
    for platform in lab.platforms:
        assert platform.run("take-over-store", "--nothing-published", "--approve").code == 0
        platform.run("adopt", "--all", "--approve")
        held = platform.run("plan").document.get("held_back", ())
        if platform.decide([one for one in held if one["follow_from"] is not None]):
            platform.run("adopt", "--all", "--approve")
        platform.run("verify")
        lab.comparisons[platform.name].forget_what_was_served()
        audited = platform.run("audit")
        accepted = [str(one["id"]) for one in audited.document["findings"] if one["kind"] in ("adoptable", "duplicate")]
        if accepted:
            platform.run("audit", *(word for one in accepted for word in ("--accept", one)))
            audited = platform.run("audit")
        codes[platform.name] = audited.code
    return codes


def expire(lab: Lab, name: str, *, keep_bytes: int) -> dict[str, int]:
    """By our retention of a topic, which is unset afterwards; how many segments were deleted, by platform."""
    topic = ("--entity-type", "topics", "--entity-name", name)
    deleted = {}
    for platform in lab.platforms:
        assert platform.run("configs", "--alter", *topic, "--add-config", f"retention.bytes={keep_bytes}").code == 0
        said = platform.run("expire", "--approve")
        deleted[platform.name] = sum(one["outcome"] == "deleted" for one in said.document.get("decisions", ()))
        assert platform.run("configs", "--alter", *topic, "--delete-config", "retention.bytes").code == 0
        lab.comparisons[platform.name].expired.add((lab.topics[name].id, 0))
    return deleted


def kill_copies(lab: Lab) -> None:
    """kill -9 as soon as the first new log is in the store; one that sends nothing ends by itself."""
    for platform in lab.platforms:
        before = len(_logs(platform))
        running = platform.begin("copy")
        wait_until(partial(_has_sent, platform, before, running), "a copy sends, or ends")
        running.kill()
        running.ended()


def wait_for_leases(lab: Lab) -> None:
    """Copies until none finds that another batch holds its partition."""
    for platform in lab.platforms:
        wait_until(partial(_no_lease_is_held, platform), "leases of killed copies end")


def name_directories(lab: Lab, nodes: list[int]) -> None:
    for platform in lab.platforms:
        platform.nodes = nodes


def _logs(platform: Platform) -> list[Path]:
    return [path for path in platform.store.rglob("*.log") if "~" not in path.name]


def _has_sent(platform: Platform, before: int, running: Running) -> bool:
    return len(_logs(platform)) > before or not running.is_alive()


def _no_lease_is_held(platform: Platform) -> bool:
    said = platform.run("copy")
    held = [one for one in said.document.get("left", ()) if one["reason"] == _HELD]
    return bool(said.document) and not held
