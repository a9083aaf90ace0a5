"""Ensembles that exist: what has run, what a plan would change, what continues them."""
