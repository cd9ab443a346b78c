"""What Airflow loads as a plugin, in each of its processes. All other modules here are imported by who needs them."""

from plugins.tiering_airflow.deletion_web import DeletionPlanPlugin as DeletionPlanPlugin
from plugins.tiering_airflow.quality_web import QualityPlugin as QualityPlugin
