"""Set a deployment up, and tell whether one is ready to run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from include.tiering.database.migrations import HEAD, require_head, upgrade
from include.tiering.database.store_identity import StoreIdentities, known_clusters, require_whole
from include.tiering.errors import (
    ClusterFactsError,
    ForeignStoreError,
    HandoverForgottenError,
    SendingStoppedError,
    SettingError,
    SourceError,
)
from include.tiering.log_source.log_dir.dirs import DirIdentity, identify, require_agreement
from include.tiering.model.ids import Uuid
from include.tiering.pools.contract import BATCH_SLOTS
from include.tiering.remote_metadata.sql import SqlRemoteLogMetadata
from include.tiering.remote_storage.store_marker import StoreMarker
from include.tiering.tasks.claim_store import SETTLE_SECONDS
from include.tiering.tasks.handover.watchdog import forgotten_handovers
from include.tiering.tasks.leases_ahead import require_none_ahead
from include.tiering.tasks.prove_place import prove_place
from include.tiering.wiring.parts import Parts
from include.tiering.work.contract import ALL_TOPICS
from include.tiering.work.sql_handovers import SqlHandoverStore

LOG_DIRS: Final = "log dirs"
TOPIC_FACTS: Final = "topic facts"
PAUSE: Final = "pause"
HANDOVERS: Final = "hand-overs"
LEASES: Final = "leases"


def set_up(parts: Parts, random_bytes: Callable[[int], bytes]) -> StoreMarker:
    """Schema at head, identity of the store, its marker: in this order, harmless when repeated or cut short.

    What the versions before did not record, the token of the generation and the place of keys, is completed. The place
    changes here as long as the database has no segment in any state.

    Raises:
        ForeignStoreError: the store belongs to another database, which may be lost; it has no marker although the
            database has segments; or the settings name another place than the one where keys lie.
        MetadataUnavailableError: the metadata are being rebuilt.
        SettingError: the log dirs belong to another cluster than the database.
    """
    upgrade(parts.engine)
    require_whole(parts.engine)
    known = known_clusters(parts.engine)
    cluster_id = _cluster_of(parts, known)
    if known and known[0] != cluster_id:
        raise SettingError(f"log_dirs belong to cluster {cluster_id}, the database serves cluster {known[0]}")
    identities, found = StoreIdentities(parts.engine, cluster_id), parts.unguarded_storage.read_marker()
    known_store = identities.read()
    if found is not None and known_store is None:
        raise ForeignStoreError(
            f"the store belongs to {found}, this database to none: if the database of that store is lost,"
            " ./tiering rebuild makes its metadata from what is stored; else correct remote_storage.url"
        )
    if known_store is not None and identities.has_segments():
        known_store.require(found, parts.place if known_store.places else None)
        if known_store.current.place is None:
            _require_segments(parts, cluster_id)
    place = parts.place
    accepted = identities.create(Uuid.random(random_bytes), Uuid.random(random_bytes), place)
    claim = parts.store_claim(identities)
    if accepted.current.place not in (None, place):
        return parts.store_move(identities).run(place, author="migrate")
    if found is None:
        first = replace(accepted.pending or accepted.current, raised_by=parts.raised_by())
        found = parts.unguarded_storage.create_marker(first)
    accepted.require(found, None)
    own = claim.complete(accepted)
    return claim.raise_generation(first_place=True) if own.token is None or own.place is None else own


def _require_segments(parts: Parts, cluster_id: str) -> None:
    """The place of keys is about to be recorded for the first time: that of the settings, if any segment is there."""
    proof = prove_place(parts.unguarded_storage, SqlRemoteLogMetadata(parts.engine, cluster_id), read_back=False)
    if proof.looked_at and proof.wrong == proof.looked_at:
        raise ForeignStoreError(
            f"none of {proof.looked_at} segments that were looked at is in {parts.place}, such as {proof.missing[0]}:"
            " set remote_storage.url, layout and key_prefix right. Nothing is written or deleted"
        )


def _cluster_of(parts: Parts, known: Sequence[str]) -> str:
    """As log dirs say, else the database, else the brokers."""
    if not parts.settings.log_dirs and (known or parts.has_brokers):
        return known[0] if known else parts.brokers.cluster_id()
    return identify(parts.log_dirs()[0]).cluster_id


def readiness_probes(parts: Parts, pool: str | None, *, needs_log_dirs: bool = True) -> dict[str, Callable[[], str]]:
    """What `run_checks` runs: each answers what it found or raises a TieringError.

    `needs_log_dirs`: settings without any are wrong. Else the brokers may be gone for good.
    """
    probes: dict[str, Callable[[], str]] = {
        "schema": lambda: _schema(parts),
        "storage": lambda: _storage(parts),
        LOG_DIRS: lambda: _log_dirs(parts) if needs_log_dirs or parts.settings.log_dirs else "none is set",
        TOPIC_FACTS: lambda: _topic_facts(parts),
        PAUSE: lambda: _pause(parts),
        HANDOVERS: lambda: _handovers(parts),
        LEASES: lambda: require_none_ahead(parts.work.leases_ahead()),
    }
    if pool is not None:
        probes["pool"] = lambda: _pool(parts, pool)
    return probes


def _schema(parts: Parts) -> str:
    require_head(parts.engine)
    return f"at {HEAD}, cluster {parts.cluster_id}"


def _storage(parts: Parts) -> str:
    parts.storage.check_writable()
    heeded = parts.unguarded_storage.replaces_conditionally()
    parts.generations.remember_conditional_writes(heeded)
    url = parts.settings.remote_storage.required_url()
    if heeded:
        return f"{url} is writable and ours"
    return (
        f"{url} is writable and ours; this server takes no notice of If-Match on PUT, so a copy of the database that"
        f" plans within {SETTLE_SECONDS:.0f} seconds of this one may not be refused at once: use a server that heeds it"
    )


def _log_dirs(parts: Parts) -> str:
    """One that cannot be read holds up its own partitions, all of them hold up the run."""
    unreadable: list[SourceError] = []
    seen: list[DirIdentity] = []
    for log_dir in parts.log_dirs():
        try:
            identity = identify(log_dir)
            require_agreement(identity, seen, identity.cluster_id)
        except SourceError as error:
            unreadable.append(error)
            continue
        except ClusterFactsError as error:
            # What the settings say of a directory: waiting does not change it.
            raise SettingError(f"{error}: correct log_dirs") from error
        seen.append(identity)
        if identity.cluster_id != parts.cluster_id:
            raise SettingError(f"{identity.path} belongs to cluster {identity.cluster_id}, not {parts.cluster_id}")
    total = len(parts.log_dirs())
    if not unreadable:
        return f"{total} readable"
    if len(unreadable) == total:
        raise unreadable[0]
    waiting = "; ".join(map(str, unreadable))
    return f"{total - len(unreadable)} of {total} readable; partitions of the others wait: {waiting}"


def _topic_facts(parts: Parts) -> str:
    parts.require_cluster(parts.cluster_id)
    parts.facts.refresh()
    if parts.has_brokers:
        return "the brokers tell them, and exact offsets"
    return "known" if parts.facts.cluster_id() is not None else "none: a topic is copied if it is named exactly"


def _pause(parts: Parts) -> str:
    paused = parts.work.paused_topics()
    if ALL_TOPICS in paused:
        raise SendingStoppedError("all topics are paused: ./tiering resume")
    return f"paused topics: {', '.join(sorted(paused))}" if paused else "nothing is paused"


def _handovers(parts: Parts) -> str:
    """One that nobody carries on holds up nothing else, but its topic's retention."""
    store = SqlHandoverStore(parts.engine, parts.cluster_id)
    under_way = store.open_handovers()
    if forgotten := forgotten_handovers(under_way, store.now_ms()):
        raise HandoverForgottenError("; ".join(one.message for one in forgotten))
    return ", ".join(f"{one.topic} is at {one.step}" for one in under_way) or "none is on its way"


def _pool(parts: Parts, pool: str) -> str:
    seen = parts.pool_mirror.seen().get(pool)
    if seen is not None and seen.slots < BATCH_SLOTS:
        raise SendingStoppedError(f"pool {pool} has {seen.slots} slots: that is a pause; give it slots to go on")
    return f"{pool} has {'an unknown number of' if seen is None else seen.slots} slots"
