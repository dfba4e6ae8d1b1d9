"""What plausible machines may cost at least and at most: by search, and by multipliers."""
