"""The report of an ensemble, as HTML, Markdown, JSON or text.

:mod:`metlmon.report.build` builds its tables, figures and definitions; one module per format
writes them.
"""
