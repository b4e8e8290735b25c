"""Selectors from other papers and packages, for comparison."""
