"""Reads the files of another machine, over the ssh of the user."""
