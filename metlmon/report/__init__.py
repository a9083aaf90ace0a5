"""The report of an ensemble, as HTML, Markdown, JSON or printed: one set of tables, figures and
definitions (:mod:`metlmon.report.build`), and one module for each way to write it."""
