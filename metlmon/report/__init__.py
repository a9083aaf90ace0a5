"""The report of an ensemble, as HTML, Markdown, JSON or text."""
