"""The platform on one machine, without other services: local Spark, SQLite, and on loopback Airflow and the metrics.

python -m local.up       start it and print its addresses
python -m local.down     stop all of it
python -m local.demo     start a platform, copy and expire segments of the bundled log dirs of real brokers, stop it
"""
