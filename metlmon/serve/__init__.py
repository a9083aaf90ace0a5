"""The dashboard in a browser of this machine, through textual-serve."""
