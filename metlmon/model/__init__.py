"""State of the ensemble: jobs, nodes and DAGs, folded from events. Reads no file and no clock."""
