"""Settings of what is counted: the history of sizes, and prices."""

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field

from include.tiering.model.sizes import PriceTable
from include.tiering.settings.rules import check_absolute_path, check_price
from include.tiering.settings.section import Section

Price = Annotated[str, BeforeValidator(check_price)]


class SizesSettings(Section):
    """What the size run keeps."""

    history_path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the history of sizes (Parquet) that Airflow's workers see. Unset: `sizes-history` "
        "beside a SQLite database, else in the directory of the size run.",
    )
    history_days: int = Field(
        default=400, ge=1, le=36_500, description="Days of that history to keep; older ones are deleted by a size run."
    )


class PricesSettings(Section):
    """What remote storage costs, for estimates."""

    currency: str = Field(default="USD", pattern=r"^[A-Za-z]{1,10}$", description="Name of the currency of all prices.")
    gib_month: Price | None = Field(
        default=None, description="Price of one GiB for a month. Unset: storage is not estimated."
    )
    put_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that write. Unset: they are not estimated."
    )
    get_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that read. Unset: they are not estimated."
    )
    delete_requests: Price | None = Field(
        default=None, description="Price of 1000 requests that delete. Unset: they are not estimated."
    )

    def table(self) -> PriceTable:
        return PriceTable(
            self.currency,
            *(
                None if price is None else Decimal(price)
                for price in (self.gib_month, self.put_requests, self.get_requests, self.delete_requests)
            ),
        )
