"""Statistics that know no run: quantities with intervals, and how many samples would decide.

In: arrays of numbers by prompt and process. Out: a Quantity, a bound, or a number of samples. Open ``quantity`` first.
"""
