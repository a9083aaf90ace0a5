"""``metlmon.toml``: in the dagdir, then in the user's configuration directory.

``GUIDE.md`` has an example of each setting ("Settings", "Keys", "Notifications", "Trackers").

Where both files set a key: the dagdir's value is used for ``tz``, the two patterns,
``checkpoint_codes`` and each key of ``[metrics]``; ``[[site]]``, ``[[label]]`` and ``[[metric]]``
of the dagdir are tried before the user's; aliases, ``[columns]`` and ``[advisor]`` are merged, with
the dagdir's first; ``read_only`` is on if either file sets it; ``[keys]``, ``[notify]``,
``[[command]]`` and ``[tracking]`` are for the user's file alone. ``metlmon config`` shows the
effective values and their origin.

The dagdir's file may belong to another user, so it is not trusted: it can set patterns and labels,
and paths below the dagdir to read, but no command and no path to write; a pattern that takes too
long is disabled (:mod:`metlmon.config.settings`), with a warning. The user's file is validated
alike.
"""
