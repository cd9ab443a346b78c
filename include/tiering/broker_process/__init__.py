"""A hand-over rehearsed: the newest bytes of a topic, copied into the log directory of a throw-away broker."""
