"""Regressions planted on purpose: each module patches one thing and then is the command line. What gates are tried on."""
