"""Spark's daemon, of which tasks are forks, with PySpark as the package imports it (see `spark_jobs`).

spark.python.daemon.module=spark_jobs.daemon    where the library is in PYTHONPATH when the daemon starts
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
