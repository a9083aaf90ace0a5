"""Turns descriptions of ensembles into DAG and submit files."""
