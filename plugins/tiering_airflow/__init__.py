"""The Airflow part of the platform: thin operators, a sensor, a trigger and pools over the library.

Imports have no side effects, and no module imports the library's heavy parts at its top, because Airflow loads DAG
files and plugins in each of its processes. All calls into the library go through `hook.TieringHook`.
"""
