"""Statistics computed from the ledger, as pure functions over immutable entries."""
