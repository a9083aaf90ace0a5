"""All nodes of a DAG as a tree."""
