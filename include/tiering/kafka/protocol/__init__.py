"""The requests that `cluster.kafka_admin` and `fetch_api` send to brokers, over connections without librdkafka.

`messages` and the `*_requests` are pure: they convert values to bytes and back, and error codes to errors.
`connections` sends requests and receives responses; `login` has addresses, TLS and SASL.
"""
