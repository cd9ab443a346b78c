"""The few requests of Kafka's protocol that say what the admin API of librdkafka cannot, over one connection each.

`messages` and the `*_requests` are pure: values to bytes and back, and what a refusal means. `connections` carry
them, `login` says how a broker is reached and proves who we are.
"""
