"""What a user asks for: the parts of a scenario, the arms that decode them, claims, and the plan made of them.

In: a scenario's YAML. Out: cases with stable ids, labels, seeds and a balanced order. Loads no model and no torch. Read
``scenario`` first, then ``plan``.
"""
