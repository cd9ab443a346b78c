"""What commands, DAG summaries and pages show: pure functions from contract values to a `Presentation`.

One module per report. The JSON members named in the design are stable; members are added, never removed or renamed.
Ids are written as Kafka prints them, offsets are inclusive and, like bytes, integers.
"""
