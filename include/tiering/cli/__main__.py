"""`python -m include.tiering.cli`: what the launcher starts."""

from include.tiering.cli.app import app

if __name__ == "__main__":
    app(prog_name="./tiering")
