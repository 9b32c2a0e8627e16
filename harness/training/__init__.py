"""Fine-tuning with the SBD objective, and the reference models that ship with the program.

In: a recipe. Out: weights as safetensors, with the loss of both heads. Open ``recipe`` first, then ``trainer``.
"""
