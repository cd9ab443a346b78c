"""Spark's daemon, which forks the tasks, run from the PySpark that the package `spark_jobs` imports (see there).

spark.python.daemon.module=spark_jobs.daemon    needs the library in PYTHONPATH when the daemon starts
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
