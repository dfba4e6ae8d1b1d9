"""Tables as they are: how files are written, what headings and time stamps mean, copies."""
