"""What runs on a machine: set-points, integrators and limits about a constant gain, also as C."""
