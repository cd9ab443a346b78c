"""The Airflow part of the platform: thin operators, a sensor, a trigger, pools and web pages over the library.

Imports have no side effects, and no module imports the library's heavy parts at its top, because Airflow loads plugins
in each of its processes and parses DAG files often. Operators, the sensor and its trigger open the library through
`hook.TieringHook`.
"""
