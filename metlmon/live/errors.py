"""What makes a dagdir unusable, said in one sentence."""

from __future__ import annotations


class InputError(Exception):
    """The input cannot be used. ``str()`` is one sentence that names the file, the line
    where there is one, and what to do."""
