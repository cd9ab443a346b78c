"""Which of the platform's DAGs are paused, from Airflow's REST API.

GET   /dags?tags=tiering   returns at most `[api] maximum_page_limit` DAGs (100 by default) that the user may read
"""

from collections.abc import Mapping
from typing import Final

from include.tiering.settings.catalogue import AirflowSettings

_TAG: Final = "tiering"
_PREFIX: Final = "tiering_"
_MOST_DAGS: Final = "100"
_TIMEOUT_SECONDS: Final = 5.0


def dags_in_airflow(airflow: AirflowSettings) -> Mapping[str, bool]:
    """Return whether each of the platform's DAGs that Airflow has and shows is paused, by its id, in their order.

    Raises:
        AirflowApiError: there is no login for Airflow's API, or Airflow refused it.
        AirflowApiUnavailableError: Airflow did not answer in `_TIMEOUT_SECONDS`.
    """
    # An HTTP client takes half a second to import: only processes that call Airflow wait for it.
    from include.tiering.configs.airflow_api import AirflowApi, member

    token = None if airflow.token is None else airflow.token.get_secret_value()
    with AirflowApi.at(
        airflow.url, login_file=airflow.login_file, token=token, timeout_seconds=_TIMEOUT_SECONDS
    ) as api:
        found = member(api.get("/dags", tags=_TAG, limit=_MOST_DAGS), "dags", list)
    by_id = {member(dag, "dag_id", str): member(dag, "is_paused", bool) for dag in found}
    return {dag_id: by_id[dag_id] for dag_id in sorted(by_id) if dag_id.startswith(_PREFIX)}
