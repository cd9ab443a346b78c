"""What Airflow loads as a plugin, in each of its processes. All other modules here are imported by who needs them."""

from plugins.tiering_airflow.web.expiration import DeletionPlanPlugin as DeletionPlanPlugin
from plugins.tiering_airflow.web.verification import QualityPlugin as QualityPlugin
