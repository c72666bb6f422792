"""The `gabion` command."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; `argv` defaults to the process's arguments."""
    # Imported late, so that a measuring process of the tour, which lives in this package, holds only what it needs.
    from gabion.cli.command_line import run

    return run(argv)
