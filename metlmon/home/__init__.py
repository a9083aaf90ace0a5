"""Home: many ensembles at once, each as one line; read by a process of its own."""
