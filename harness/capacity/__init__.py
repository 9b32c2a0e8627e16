"""The planner: which settings fit, how fast they serve, what they cost, and at which batches SBD pays.

In: a Question (a model's shape, an acceptance, a load and goals) and hardware profiles. Out: a Plan of deployments with their
reasons, all modelled. Open ``question`` and ``plan`` first.
"""
