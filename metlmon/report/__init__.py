"""The report of an ensemble, as HTML or Markdown, from the same sums that the screens show."""
