"""Tallies of a run: every decode reduced to counts, sums and prices, so that a large record is read once.

In: samples. Out: one Tally a decode; under a load a request is a decode. Open ``tally`` first.
"""
