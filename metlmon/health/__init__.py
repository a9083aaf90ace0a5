"""What is wrong with an ensemble, and what a person can do about it."""
