"""The only module that Airflow loads as a plugin, in each of its processes. DAGs import the other modules they need."""

from plugins.tiering_airflow.web.expiration import DeletionPlanPlugin as DeletionPlanPlugin
from plugins.tiering_airflow.web.page import TieringPagePlugin as TieringPagePlugin
from plugins.tiering_airflow.web.verification import QualityPlugin as QualityPlugin
