"""Benchmarks: the paper's tables and figures, and ours. One case, one JSON line; tables come from the lines alone."""
