"""Notifications: what happened to an ensemble, sent to somebody who is away."""
