"""For a machine never tried: its controller, how far to trust it, and what to run next."""
