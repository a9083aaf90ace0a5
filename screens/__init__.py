"""The Textual application: the screens of an ensemble, and their keys."""
