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

[columns]                         # of a screen, by name or heading, in this order
overview = ["vars", "progress", "state", "val_loss", "best", "badput"]

[metrics]
files = ["output/training_logs/{uuid}"]   # directories with version_<k>/metrics.csv or wandb/
primary = "val_loss"              # shown first
goal = "min"                      # or "max": which value is best

[[metric]]                        # a metric that is printed or written in another form
name = "spearman"
file = "out"                      # the jobs' own output, or a name pattern: "logs/{run}_*.txt"
pattern = 'epoch (?P<epoch>\\d+): rho=(?P<value>\\S+)'

[notify]                          # the user's own file only
terminal = ["bell", "osc9"]       # or "osc777"
command = ['sh', '-c', 'notify-send "$METLMON_TITLE" "$METLMON_TEXT"']
webhook = "https://hooks.example.org/services/T0"
about = ["held", "failed"]        # default: all
interval = 60                     # minimum number of seconds between two

[[command]]                       # on a free key; the user's own file only
key = "^g"
name = "its requirements"
command = ["condor_q", "-better-analyze", "{job}"]   # {run}, {dagdir}: whole arguments

[tracking]                        # an MLflow server, for metlmon export; the user's own file only
uri = "https://mlflow.example.edu"
experiment = "metl"               # default: "metlmon"
token = "secret"                  # or username and password

[advisor.bio240012]               # an allocation: plans spend no more than its balance
balance = 5000                    # in the facility's unit
charge = 2.5                      # of it per GPU-hour; default: 1
sites = ["delta"]                 # as Sites shows them
as_of = 2026-05-01                # when it was so: what was used since is subtracted
```

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
