"""Telling Spark's own failures from errors of the code that a task ran."""

from pyspark.errors import PySparkException, PythonException


def is_lost_task(error: Exception) -> bool:
    """Spark's own errors, and those of py4j, its bridge to the JVM: another try can help. Not what our code raised."""
    of_spark = isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")
    return of_spark and not isinstance(error, PythonException)
