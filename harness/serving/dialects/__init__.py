"""What an inference engine is called, how it is started and asked, and where it counts: one Dialect in one module each.

In: a request, or an event of an answer. Out: the body as the engine takes it, or what the event holds by this program's names.
Open ``dialect`` first, then ``registry``.
"""
