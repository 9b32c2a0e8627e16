"""The planner: which settings fit, how fast they serve, what they cost, and at which batches SBD pays.

In: a model's shape, hardware profiles, a load and goals. Out: answers with their reasons, all modelled. Open ``plan`` first.
"""
