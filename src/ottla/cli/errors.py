"""How a command ends when it does not end well."""

from __future__ import annotations

FAILED = 1
WRONG_USAGE = 2
# What a shell reports of a program that Ctrl-C ended, and of one whose output nobody reads any more.
INTERRUPTED = 130
UNREAD = 141


class UsageError(Exception):
    """The command was called in a wrong way; the text says how, and where to look."""


class CommandFailed(Exception):
    """The command could not do what was asked; the text is the sentence for the user."""
