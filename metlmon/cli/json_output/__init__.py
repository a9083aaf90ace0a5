"""The JSON outputs of the commands, as types that their schemas come from."""
