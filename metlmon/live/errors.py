"""What makes a dagdir unusable, said in one sentence."""

from __future__ import annotations


class InputError(Exception):
    """The input cannot be used. ``str()`` is one sentence that names the file, the line
    where there is one, and what to do; what looks like a secret is not quoted."""

    def __init__(self, sentence: str) -> None:
        # Not all commands that can fail need its patterns before they do.
        from metlmon.secret import hide

        super().__init__(hide(sentence))
