"""What the data source leaves behind in Spark's Python processes."""

import gc
from collections.abc import Iterator

import pytest

from spark_jobs.kafka_tiered import KafkaTieredSource, _exempt_from_collection


@pytest.fixture
def _as_in_a_new_process() -> Iterator[None]:
    gc.unfreeze()
    _exempt_from_collection.cache_clear()
    yield
    gc.unfreeze()
    _exempt_from_collection.cache_clear()


@pytest.mark.usefixtures("_as_in_a_new_process")
def test_modules_are_exempt_from_garbage_collection_and_later_objects_are_not() -> None:
    KafkaTieredSource({"subscribe": "orders"}).schema()
    frozen = gc.get_freeze_count()
    assert frozen > len(gc.get_objects())
    later = [[number] for number in range(1000)]
    KafkaTieredSource({"subscribe": "orders"}).schema()
    assert gc.get_freeze_count() <= frozen
    assert any(each is later for each in gc.get_objects())
