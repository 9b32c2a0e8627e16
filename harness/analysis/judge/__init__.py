"""Judgements: claims about a run, each confirmed, refuted, inconclusive or void.

In: quantities and trust. Out: judgements with their reasons and remedies. Open ``verdict`` first.
"""
