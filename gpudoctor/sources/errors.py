"""What can be wrong with a source as a whole."""


class SourceError(Exception):
    """The source cannot be used at all; the message is one line for the user."""
