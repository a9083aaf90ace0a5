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

Where both files set a key: the dagdir's holds for ``tz``, the two patterns,
``checkpoint_codes`` and each key of ``[metrics]``; ``[[site]]``, ``[[label]]`` and ``[[metric]]``
of the dagdir are tried before the user's; aliases are those of both, the dagdir's where both have
a name; ``read_only`` holds if either says so. ``metlmon config`` shows what holds and why.

The dagdir's file may have come with it, so that it is somebody else's word: it names patterns and
labels, and places below the dagdir to read; no command, nothing to write, and no pattern that
takes for ever (:mod:`metlmon.config.regex_check`). The user's own is judged alike.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from metlmon.config.loader import NAME, configuration, configuration_directory, zone
from metlmon.live.errors import InputError
from metlmon.model.settings import Settings

__all__ = ["NAME", "configuration_directory", "load_settings", "zone"]

MOST_REMARKS: Final = 20


def load_settings(dagdir: Path) -> Settings:
    """The user's settings, and over them those of the dagdir. Raises InputError with the first
    thing that is wrong. In a file of the dagdir that is somebody else's the user can mend
    nothing: what is wrong there is left out, and that is remarked, as is that the rest holds."""
    found = configuration(dagdir)
    theirs = next((s.path for s in found.sources if s.origin == "dagdir" and s.foreign), None)
    ours = [each for each in found.complaints if each.path != theirs]
    if ours:
        first, *others = ours
        more = f"; {len(others)} more: metlmon config validate" if others else ""
        raise InputError(f"{first}{more}")
    if theirs is None:
        return found.settings
    remarks = [
        (NAME, each.line, f"somebody else's setting, left out: {each.message}")
        for each in found.complaints[:MOST_REMARKS]
    ]
    in_force = sorted({entry.key for entry in found.entries if entry.origin == "dagdir"})
    if in_force:
        said = f"somebody else's settings hold here: {', '.join(in_force)}; see metlmon config"
        remarks.insert(0, (NAME, None, said))
    return replace(found.settings, remarks=tuple(remarks))
