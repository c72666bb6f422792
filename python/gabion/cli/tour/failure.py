"""The error that ends a tour."""


class TourError(Exception):
    """Wrong input or surroundings. The message is one line: what was asked, what is the case, what to do."""
