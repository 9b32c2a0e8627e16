"""What is drawn beside an answer and not judged: passes, blocks, factors, loads, best settings.

In: tallies, quantities or the run itself. Out: frozen values, ready to be drawn.
"""
