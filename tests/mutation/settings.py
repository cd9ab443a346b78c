"""What the processes tell each other through their environment: names of variables and of files."""

from typing import Final

MEASURED: Final = "MUTATION_MEASURED"
"""The directory of which lines are recorded."""
RECORDED: Final = "MUTATION_RECORDED"
"""Where they are recorded: the beginning of files' names, one for each process."""
SECONDS_SUFFIX: Final = ".seconds.json"
"""Of the file beside them that holds the seconds of each test that passed."""
TRIAL: Final = "MUTATION_TRIAL"
"""A JSON file that says what is changed and which tests are run; see `trial`."""
