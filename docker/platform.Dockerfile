# Airflow, Spark and the library in one image, from the lock file: the driver and its executors run the same packages.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 50000 --create-home tiering \
    && install -d -o tiering -g tiering /opt/tiering /srv/airflow /srv/airflow/logs /srv/airflow/tiering /srv/audit /srv/sizes /srv/spark

RUN pip install --no-cache-dir uv==0.13.9

USER tiering
WORKDIR /opt/tiering
COPY --chown=tiering pyproject.toml uv.lock ./
RUN uv sync --frozen --no-default-groups --compile-bytecode --no-cache
COPY --chown=tiering . .
RUN .venv/bin/python -m compileall -q include plugins spark_jobs dags

ENV AIRFLOW_HOME=/srv/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/tiering/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/tiering/plugins \
    PATH=/opt/tiering/.venv/bin:$PATH \
    PYSPARK_PYTHON=/opt/tiering/.venv/bin/python \
    PYTHONPATH=/opt/tiering
