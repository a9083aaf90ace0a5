"""Linter for DAG and submit files: the rules of ``metlmon check``."""
