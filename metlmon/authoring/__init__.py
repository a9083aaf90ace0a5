"""Descriptions of ensembles → DAG and submit files."""
