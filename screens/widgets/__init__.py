"""Widgets that paint lines and repaint only the cells that changed."""
