"""Audits of any mixture find what was planted; parts of a listing leave no key out."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from include.tiering.audit.compare import classify, gather
from include.tiering.audit.finding import AuditContext, AuditMoment, FindingKind
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import KeyInterval, cut
from tests.doubles.audit_plants import PLANTS, QUIET, UPLOAD_PLANTS, VERSION_PLANTS
from tests.doubles.audit_worlds import KINDS, LISTED_AT_MS, OLD_MS, TOMBSTONE, World, text_id

ALL = {**PLANTS, **VERSION_PLANTS, **UPLOAD_PLANTS, **QUIET, "healthy": lambda world: world.healthy()}
SLASHED = st.text("a/b-.0", max_size=6)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(ALL)), max_size=12), st.sampled_from(["", "null"]), st.randoms())
def test_what_was_planted_is_found_in_any_mixture_and_order(
    names: list[str], version: str, order: random.Random
) -> None:
    world = World.empty(current_version=version)
    for name in names:
        ALL[name](world)
    for rows in (world.objects, world.uploads, world.segments):
        order.shuffle(rows)
    context = AuditContext(
        AuditMoment(LISTED_AT_MS), AivenLayout(), world.topics, frozenset(world.leased_partitions), world.read_manifest
    )
    halves = [world.objects[::2], world.objects[1::2]]
    found = classify(gather(halves, [world.uploads], context), world.segments, context)
    assert sorted(finding.identity for finding in found.findings) == sorted(world.expected)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=3),
    st.lists(st.sampled_from([*KINDS, "index", "snapshot"]), unique=True, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_objects_of_a_known_id_are_untouchable(
    states: list[tuple[int, int]], kinds: list[str], misplaced: bool, leased: bool
) -> None:
    """Whatever its states are, in however many partitions, and wherever its objects stand."""
    world = World.empty()
    attempt = world.attempt()
    for state, age in states:
        world.know(attempt, state, OLD_MS + age)
    for kind in kinds:
        world.store(("backup/" if misplaced else "") + attempt.key(kind), attempt.log_bytes)
    if leased:
        world.leased_partitions.add((attempt.topic_id, attempt.partition))
    context = AuditContext(AuditMoment(LISTED_AT_MS), AivenLayout(), world.topics, frozenset(world.leased_partitions))
    found = classify(gather([world.objects], [], context), world.segments, context)
    if any(state != TOMBSTONE for state, _ in states):
        removable = {FindingKind.ORPHAN, FindingKind.ADOPTABLE, FindingKind.FOREIGN_OBJECT}
        assert not removable & {finding.kind for finding in found.findings}


@given(st.sets(SLASHED), st.integers(1, 6), st.sets(SLASHED))
def test_parts_of_a_listing_hold_every_key_once(stored: set[str], wanted: int, forgotten: set[str]) -> None:
    """Also keys that whoever looked for directories forgot, or never saw."""

    def children(below: str) -> list[str]:
        seen = {key for key in stored - forgotten if key.startswith(below) and "/" in key[len(below) :]}
        return sorted({below + key[len(below) :].partition("/")[0] + "/" for key in seen})

    parts = cut(children, wanted)
    assert len(parts) <= max(wanted, 1)
    for key in stored | {"", "zzz", "\U0010ffff"}:
        assert sum(part.holds(key) for part in parts) == 1
    assert parts[0].after is None
    assert parts[-1].until is None
    assert KeyInterval().holds(text_id("any key"))
