"""The few requests of Kafka's protocol that say what the admin API of librdkafka cannot, over one connection each.

`fields` and the `*_requests` are pure: values to bytes and back. `connection` carries them, `scram` proves who we are,
`error_codes` says what a refusal means.
"""
