"""Planning for machines that are not linear: paths, by iterative LQR."""
