"""The requests that `cluster.kafka_admin` sends to brokers, over connections that do not use librdkafka.

`messages` and the `*_requests` are pure: they convert values to bytes and back, and error codes to errors.
`connections` sends requests and receives responses; `login` has addresses, TLS and SASL.
"""
