"""State of the ensemble: jobs, nodes and DAGs; reads no file and no clock."""
