"""What ran when and where."""
