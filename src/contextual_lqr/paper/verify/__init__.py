"""The guarantees, measured: runs -> rows; rows -> checks, figures, a report."""
