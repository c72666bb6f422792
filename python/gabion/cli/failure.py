"""The error that ends a command."""


class CommandError(Exception):
    """Wrong input or surroundings. The message is one line: what was asked, what is the case, what to do."""


def shown(text: object) -> str:
    """Text as one line that a terminal shows and does not obey: names of files may hold any character but NUL."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(text))
