"""What the fleet has taught, and what that says about one machine."""
