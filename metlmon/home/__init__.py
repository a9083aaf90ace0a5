"""Home: many ensembles at once, each on one line; a separate process reads them."""
