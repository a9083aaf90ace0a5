"""Files of another machine, read over the user's own ``ssh``."""
