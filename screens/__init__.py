"""The Textual application: what a person sees of an ensemble, and the keys to move in it."""
