"""Entry point of `python -m include.tiering.cli`, which the launcher `./tiering` runs."""

from include.tiering.cli.app import cli

if __name__ == "__main__":
    cli(prog_name="./tiering")
