"""What runs on the machine: set-points, integrators and limits around a constant gain; one C file."""
