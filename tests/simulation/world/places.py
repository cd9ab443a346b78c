"""Where settings lead: to the store, or while a disk is not mounted or a setting is wrong to another place.

A store is a directory or a bucket. Who uses a directory holds it open, as the product's adapter does: if its path leads
elsewhere, its calls are refused until it leads back. What a bucket's name leads to may be another one from one call to
the next; it is not put right while somebody who met the other one is still at work.
"""

from dataclasses import dataclass
from typing import Final

from include.tiering.errors import ForeignStoreError
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.simulation.kernel.choices import Choices
from tests.simulation.kernel.scheduler import Process
from tests.simulation.world.object_store import StoreState

DIRECTORY: Final = "file:///simulated/store"
BUCKET: Final = "s3://simulated/store"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a deployment's settings say of where keys lie."""

    url: str
    key_prefix: str = ""
    layout: str = "aiven"


class Places:
    """Of one world. `instead` is what the right URL leads to while it is not the store."""

    def __init__(self, choices: Choices, store: StoreState, *, is_directory: bool) -> None:
        self._choices = choices
        self.store = store
        self.is_directory = is_directory
        self.right = StoreSettings(DIRECTORY if is_directory else BUCKET)
        self.settings = self.right
        """Of processes that start now."""
        self.instead: StoreState | None = None
        self._others: dict[str, StoreState] = {}
        self.misdirected: set[Process] = set()
        """They met another place than the store under the right URL."""

    @property
    def is_right(self) -> bool:
        return self.instead is None and self.settings == self.right

    def at(self, url: str, process: Process) -> StoreState:
        if url != self.right.url:
            return self._others.setdefault(url, self._empty())
        if self.instead is not None:
            self.misdirected.add(process)
            return self.instead
        return self.store

    def goes_away(self, marker: bytes | None) -> None:
        """An empty place is there instead, at most with a marker."""
        self.instead = self._empty()
        if marker is not None:
            self.instead.objects[MARKER_KEY] = marker

    def comes_back(self) -> None:
        self.instead = None

    def may_come_back(self) -> bool:
        return self.is_directory or not any(not one.dead and not one.finished for one in self.misdirected)

    def _empty(self) -> StoreState:
        return StoreState(self._choices, confirms=self.store.confirms)

    def forget(self, process: Process) -> None:
        """It died."""
        for state in (self.store, *([] if self.instead is None else [self.instead]), *self._others.values()):
            state.forget(process)


class Held:
    """What one process holds of a place."""

    def __init__(self, places: Places, process: Process, url: str) -> None:
        self._places = places
        self._process = process
        self._url = url
        self._held: StoreState | None = None

    def now(self) -> StoreState:
        """Raises ForeignStoreError if a directory is another one than it was at first."""
        found = self._places.at(self._url, self._process)
        if not self._places.is_directory:
            return found
        if self._held is None:
            self._held = found
        elif self._held is not found:
            raise ForeignStoreError(f"{self._url} is another directory now than the one that was used before")
        return found

    @property
    def is_the_store(self) -> bool:
        return self._places.at(self._url, self._process) is self._places.store
