"""What several processes do to the meters of topics at once. Each function runs in a process of its own."""

import random
from collections import Counter
from typing import Final

from sqlalchemy import Engine

from include.tiering.clock import SystemClock
from include.tiering.configs.config_store import FreshTopicQuotaConfigs
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.engine import open_engine
from include.tiering.database.transactions import NowMs
from include.tiering.errors import QuotaExceededError
from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
from include.tiering.quotas.topic_quotas import MeterKind
from tests.doubles.segments import CLUSTER_ID

BROKERS: Final = (1, 2)
TOPICS: Final = ("orders", "clicks", "audit")
BASE_MS: Final = 1_700_000_000_000
OPENING: Final = (MeterKind.ERROR, MeterKind.ACCEPTED)
"""What every process brings in before its clock moves: whoever is first finds no rate yet, so it is admitted."""
Counted = dict[tuple[int, str, str], tuple[int, int]]
"""Bytes and records by broker id, topic and kind."""


def bring_in(number: int, url: str, rounds: int, seed: int) -> Counted:
    """Ask for that many segments, on a database whose clock soon jumps both ways; returns what should be counted."""
    draw = random.Random(f"{seed}/{number}")
    engine = open_engine(url)
    still, jumping = _quotas(engine, lambda _: BASE_MS), _quotas(engine, _jumping(draw))
    size_bytes: Counter[tuple[int, str, str]] = Counter()
    records: Counter[tuple[int, str, str]] = Counter()
    kinds = [*OPENING, *draw.choices((MeterKind.ERROR, MeterKind.ACCEPTED), (1, 4), k=rounds - len(OPENING))]
    for segment, kind in enumerate(kinds):
        quotas = still if segment < len(OPENING) else jumping
        broker_id, topic = draw.choice(BROKERS), draw.choice(TOPICS)
        size, count = draw.randint(0, 2**31), draw.randint(1, 1_000)
        try:
            admission = quotas.admit(broker_id, topic, size_bytes=size, records=count)
            (quotas.failed if kind is MeterKind.ERROR else quotas.accepted)(admission)
        except QuotaExceededError:
            kind = MeterKind.THROTTLED
        for key in ((broker_id, topic, str(MeterKind.IO)), (broker_id, topic, str(kind))):
            size_bytes[key] += size
            records[key] += count
    engine.dispose()
    return {key: (size_bytes[key], records[key]) for key in size_bytes}


def bring_in_for_ever(url: str) -> None:
    """Until somebody kills this process."""
    draw = random.Random(0)
    quotas = _quotas(open_engine(url), _jumping(draw))
    while True:
        try:
            quotas.accepted(quotas.admit(1, draw.choice(TOPICS), size_bytes=draw.randint(0, 2**31), records=1))
        except QuotaExceededError:
            continue


def _quotas(engine: Engine, now_ms: NowMs) -> SqlTopicQuotas:
    configs = FreshTopicQuotaConfigs(SqlConfigStore(engine, CLUSTER_ID), SystemClock(), enabled=True)
    return SqlTopicQuotas(engine, CLUSTER_ID, configs, now_ms=now_ms)


def _jumping(draw: random.Random) -> NowMs:
    return lambda _: BASE_MS + draw.randint(0, 60_000)
