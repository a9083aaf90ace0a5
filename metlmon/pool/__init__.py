"""HTCondor pool: queue queries, actions on jobs and DAGs, submission."""
