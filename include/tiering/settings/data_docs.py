"""Settings of the pages about quality runs."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from include.tiering.settings.rules import check_absolute_path
from include.tiering.settings.section import Section


class DataDocsSettings(Section):
    """Where the pages are, and how long."""

    path: Annotated[str, BeforeValidator(check_absolute_path)] | None = Field(
        default=None,
        description="Directory of the data docs: a page and the stored results of each run that judged segments. "
        "Airflow's workers write it, its API server reads it. Unset: `data-docs` in Airflow's `[tiering] work_dir`.",
    )
    keep_runs: int = Field(default=200, ge=1, le=100_000, description="Runs of each DAG whose pages are kept.")
    keep_days: int = Field(default=90, ge=1, le=36_500, description="Days after which a run's page is removed.")
