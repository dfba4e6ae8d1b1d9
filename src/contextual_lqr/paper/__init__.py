"""A frozen configuration and a seed -> rows; rows -> summary, figures, report."""
