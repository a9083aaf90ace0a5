"""``metlmon.toml``: in the dagdir, then in the user's configuration directory.

```toml
tz = "America/Chicago"            # the access point's zone, for differences over DST
train_node = '^(?P<run>.*)-train_epoch(?P<epoch>\\d+)$'
side_node  = '^(?P<run>.*)-eval_epoch(?P<epoch>\\d+)$'
checkpoint_codes = [85]           # return values that mean "run me again"
read_only = true                  # nothing can be held, released, removed or submitted

[site_aliases]                    # as logged = as shown and counted
"SDSC-PRP-CE1" = "NRP"

[gpu_aliases]
"Tesla V100-SXM2-32GB" = "V100-SXM2"

[[site]]                          # hosts that no GLIDEIN_ResourceName names; before the
host = "*.example.edu"            # built-in table
name = "example"

[[label]]                         # a cohort of runs: names, uuids, their beginnings, patterns
name = "control"
runs = ["run1*", "0ee9fad9"]

[metrics]
files = ["output/training_logs/{uuid}"]   # directories with version_<k>/metrics.csv
primary = "val_loss"              # shown first
goal = "min"                      # or "max": which value is best

[[metric]]                        # a metric that is printed or written in another form
name = "spearman"
file = "out"                      # the jobs' own output, or a name pattern: "logs/{run}_*.txt"
pattern = 'epoch (?P<epoch>\\d+): rho=(?P<value>\\S+)'
```

Where both files set a key: the dagdir's value is used for ``tz``, the two patterns,
``checkpoint_codes`` and each key of ``[metrics]``; ``[[site]]``, ``[[label]]`` and ``[[metric]]``
of the dagdir are tried before the user's; aliases are merged, with the dagdir's first;
``read_only`` is on if either file sets it; ``[keys]`` is for the user's file alone. ``metlmon
config`` shows the effective values and their origin.

The dagdir's file may belong to another user, so it is not trusted: it can set patterns and labels,
and paths below the dagdir to read, but no command and no path to write; a pattern that takes too
long is disabled (:mod:`metlmon.config.safe_regex`), with a warning. The user's file is validated
alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from metlmon.config.loader import NAME, configuration_directory, load_configuration, time_zone
from metlmon.config.settings import Settings
from metlmon.live.errors import InputError

__all__ = ["NAME", "configuration_directory", "load_settings", "time_zone"]

MAX_REMARKS: Final = 20


def load_settings(dagdir: Path) -> Settings:
    """The user's settings, overridden by those of the dagdir.

    Raises InputError with the first problem. If the dagdir's file belongs to another user, who
    alone can correct it, its invalid settings are left out instead; that, and the settings in
    force from it, are noted in ``Settings.remarks``.
    """
    config = load_configuration(dagdir)
    foreign_path = next(
        (source.path for source in config.sources if source.origin == "dagdir" and source.foreign),
        None,
    )
    own_problems = [problem for problem in config.problems if problem.path != foreign_path]
    if own_problems:
        first, *others = own_problems
        more = f"; {len(others)} more: metlmon config validate" if others else ""
        raise InputError(f"{first}{more}")
    if foreign_path is None:
        return config.settings
    remarks = [
        (NAME, problem.line, f"somebody else's setting, left out: {problem.message}")
        for problem in config.problems[:MAX_REMARKS]
    ]
    in_force = sorted({entry.key for entry in config.entries if entry.origin == "dagdir"})
    if in_force:
        text = f"somebody else's settings hold here: {', '.join(in_force)}; see metlmon config"
        remarks.insert(0, (NAME, None, text))
    return replace(config.settings, remarks=tuple(remarks))
