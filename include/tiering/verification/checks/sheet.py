"""The columns of a measure while it is taken: filled one probe at a time, whatever a probe meets."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from include.tiering.errors import FormatError, RemoteAccessDeniedError, RemoteStorageError
from include.tiering.verification.checks.faults import Faults

_T = TypeVar("_T")


class Sheet:
    """`values` by column, None where it could not be measured; `remarks` explain what a number alone does not.

    `is_refused`: something could not be measured because the store has it and does not give it.
    """

    def __init__(self) -> None:
        self.values: dict[str, int | None] = {}
        self.remarks: list[tuple[str, str]] = []
        self.is_refused = False

    def fill(self, columns: Sequence[str], probe: Callable[[], Sequence[int | None]]) -> None:
        """What `probe` gives; None in all of `columns` if it meets bytes or objects that cannot be used.

        Raises:
            RemoteStorageUnavailableError: the store does not answer (retriable).
        """
        found = self.attempt(columns, probe)
        if found is not None:
            self.values.update(zip(columns, found, strict=True))

    def attempt(self, columns: Sequence[str], build: Callable[[], _T]) -> _T | None:
        """What `build` gives, for `columns` that are filled later; None if it fails, as `fill` does."""
        try:
            return build()
        except (FormatError, RemoteStorageError) as error:
            if error.retriable:
                raise
            self.is_refused |= isinstance(error, RemoteAccessDeniedError)
            self.leave_out(columns, str(error))
            return None

    def leave_out(self, columns: Sequence[str], reason: str) -> None:
        """These could not be measured."""
        for column in columns:
            self.values[column] = None
            self.remark(column, f"{column} could not be measured: {reason}")

    def count(self, column: str, *faults: Faults) -> None:
        """The sum of these, with the first of each."""
        found = [each for each in faults if each.count]
        self.values[column] = sum(each.count for each in found)
        if found:
            self.remark(column, f"{column} = {self.values[column]}: {'; '.join(each.first for each in found)}")

    def remark(self, column: str, text: str) -> None:
        self.remarks.append((column, text))
