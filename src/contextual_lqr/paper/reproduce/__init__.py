"""The paper's experiments, run by one command."""
