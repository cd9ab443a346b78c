"""The whole model store as an `ObjectListing`, as an audit reads it: page by page, each of its own moment."""

from collections.abc import Iterator, Sequence
from typing import Final

from include.tiering.remote_storage.object_store import KeyInterval, ListedObject, ListedUpload, ListingProperties
from tests.simulation.world.object_store import ModelStore

_PAGE_KEYS: Final = 24


class ModelListing:
    """Of one process."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    def describe(self) -> str:
        return self._store.describe()

    def properties(self) -> ListingProperties:
        return ListingProperties(shows_versions=False, shows_open_uploads=True)

    def parts(self, wanted: int) -> Sequence[KeyInterval]:
        return (KeyInterval(),)

    def pages(self, part: KeyInterval) -> Iterator[Sequence[ListedObject]]:
        after, is_more = "", True
        while is_more:
            page = self._page(after)
            is_more = len(page) == _PAGE_KEYS
            after = page[-1].key if page else after
            yield page

    def open_uploads(self) -> Iterator[Sequence[ListedUpload]]:
        store = self._store
        found = store.request("store.list uploads", "", "store read", lambda: list(store.state.uploads))
        yield [
            ListedUpload(upload.key, upload.token, upload.began_ms)
            for upload in found
            if upload.listed and not store.lags(upload)
        ]

    def _page(self, after: str) -> list[ListedObject]:
        state = self._store.state
        keys: list[str] = self._store.request(
            "store.list",
            f"after {after}",
            "store read",
            lambda: sorted(key for key in state.objects if key > after and key not in state.hidden),
        )
        return [ListedObject(key, len(state.objects[key]), state.written_ms.get(key, 0)) for key in keys[:_PAGE_KEYS]]
