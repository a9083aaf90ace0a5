"""HTCondor itself: the queue's word, actions on jobs and DAGs, submission."""
