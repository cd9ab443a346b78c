"""The life of a cluster: real brokers are led through events while two platforms archive their topics.

    make life MINUTES=30 SEED=7                        a walk of events that the seed chooses; exit code 1 on a finding
    python -m tests.life table .run/life/seed-7.jsonl  what each command said after each event, as Markdown
    make test-kafka                                    the events one by one (tests/kafka/test_life*.py)

- `cluster`: three brokers that are controllers as well, and a fourth one that can take a broker's place.
- `oracle`: a consumer that keeps a digest of each record for each leader epoch under which it was read.
- `stored_records`: reads what the stores hold. It shares nothing with `include/`.
- `platform`: the commands of `./tiering`, their exit codes, and the decisions of a person.
- `comparison`: what is archived, compared with what was read. A difference is a finding.
- `events`: what happens to the cluster. `walk`: many of them. `journal`: what was true, and what was said.
"""
