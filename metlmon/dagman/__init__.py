"""Reads DAG files and the files that DAGMan writes into typed records."""
