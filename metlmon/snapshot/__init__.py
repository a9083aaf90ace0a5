"""Immutable snapshots of the model: what screens, tables and JSON show, and the ledger."""
