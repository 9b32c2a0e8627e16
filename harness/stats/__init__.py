"""Statistics that know no run: quantities with intervals, and the number of samples that decides a claim.

In: arrays of numbers by prompt and process. Out: a Quantity, a bound, or a number of samples. Open ``quantity`` first.
"""
