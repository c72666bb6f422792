"""The error that ends a command."""


class CommandError(Exception):
    """Wrong input or surroundings. The message is one line: what was asked, what is the case, what to do."""
