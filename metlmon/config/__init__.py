"""Settings: ``metlmon.toml`` in the dagdir and in the user's configuration directory."""
