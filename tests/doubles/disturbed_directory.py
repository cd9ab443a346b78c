"""A directory in which something happens at a chosen moment: after it was listed, or before a file is opened."""

import os
from collections.abc import Callable

from include.tiering.kafka.log_dirs.files import BrokerDirectory, BrokerFile


class DisturbedDirectory(BrokerDirectory):
    """Hands out partition directories of which the first listings are followed by `after_listing`.

    Args:
        path: the log directory.
        after_listing: called with the partition's name after each of its listings.
        before_opening: called with a file's name before it is opened.
    """

    def __init__(
        self,
        path: str,
        *,
        after_listing: Callable[[str], None] = lambda _name: None,
        before_opening: Callable[[str], None] = lambda _name: None,
    ) -> None:
        super().__init__(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path)
        self._after_listing = after_listing
        self._before_opening = before_opening

    def directory(self, name: str) -> "DisturbedDirectory":
        super().directory(name).close()
        return DisturbedDirectory(
            self.path_of(name), after_listing=self._after_listing, before_opening=self._before_opening
        )

    def entries(self) -> list[os.DirEntry[str]]:
        found = super().entries()
        self._after_listing(self.path.rpartition("/")[2])
        return found

    def file(self, name: str, *, bulk: bool = False) -> BrokerFile:
        self._before_opening(name)
        return super().file(name, bulk=bulk)
