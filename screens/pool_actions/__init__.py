"""Actions on jobs, runs and DAGs: menu, confirmation, results."""
