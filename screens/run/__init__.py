"""One run, epoch by epoch."""
