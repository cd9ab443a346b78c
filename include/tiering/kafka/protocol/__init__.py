"""The requests of Kafka's protocol that the admin API of librdkafka does not offer, over connections of their own.

`messages` and the `*_requests` are pure: they convert values to bytes and back, and error codes to errors.
`connections` sends and receives them; `login` has addresses, TLS and SASL.
"""
