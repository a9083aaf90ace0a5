"""The submit form."""
