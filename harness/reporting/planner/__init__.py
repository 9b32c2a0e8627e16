"""The page's planner: the capacity model as data for a form that works offline.

In: a run and the planner's answers. Out: one view for the template. Open ``view`` first.
"""
