"""The `gabion` command."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; `argv` defaults to the process's arguments."""
    # Imported late, so that a measuring process of the tour, which lives in this package, holds only what it needs.
    try:
        from gabion.cli.command_line import run
    except ModuleNotFoundError as missing:
        # Only the command needs rich: who installs without dependencies, or packs the library alone, may lack it.
        if (missing.name or "").partition(".")[0] != "rich":
            raise
        from gabion.cli.failure import complain

        complain("the command needs the package rich, which is not installed: pip install rich")
        return 2
    except KeyboardInterrupt:
        # Nothing was begun yet.
        return 130

    return run(argv)
