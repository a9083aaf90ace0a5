"""One job and its history."""
