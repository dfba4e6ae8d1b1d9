"""Data on their way into a belief: episodes and rows, each counted once."""
