"""`python -m include.tiering.cli`: what the launcher starts."""

from include.tiering.cli.app import cli

if __name__ == "__main__":
    cli(prog_name="./tiering")
