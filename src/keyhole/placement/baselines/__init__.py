"""Selectors of other papers and packages that Keyhole is compared with."""
