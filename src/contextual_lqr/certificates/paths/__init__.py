"""Certificates of planned paths, for nonlinear machines."""
