"""Certificates of planned paths, for machines that are not linear."""
