"""The error that ends a tour."""

from gabion.cli.failure import CommandError


class TourError(CommandError):
    """Wrong input or surroundings. The message is one line: what was asked, what is the case, what to do."""
