"""What a record proves about itself.

In: a run as it was read. Out: its seal, its contradictions, its answers graded again, and whether anything may be judged by it.
Read ``integrity`` first.
"""
