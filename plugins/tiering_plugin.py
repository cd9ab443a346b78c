"""The module that Airflow loads as a plugin in each of its processes. Operators and DAGs import all other modules."""

from plugins.tiering_airflow.web.expiration import DeletionPlanPlugin as DeletionPlanPlugin
from plugins.tiering_airflow.web.verification import QualityPlugin as QualityPlugin
