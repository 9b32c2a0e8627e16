"""Our decoders inside other programs: the LM Evaluation Harness, and transformers' custom_generate.

In: requests of the other program. Out: its own types. Open ``lm_eval`` first.
"""
