"""The Health screen, and the health line of the headers."""
