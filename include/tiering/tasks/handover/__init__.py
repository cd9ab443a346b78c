"""The hand-over of a topic to its brokers, step by step."""
