"""Usage by site, GPU model and cause."""
