"""Tables: each column declared once, for commands, screens and reports."""
