"""Immutable snapshots of the model, for screens, tables and JSON; and the ledger."""
