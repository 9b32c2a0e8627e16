"""Prompts: what a part decodes, and how an answer is checked.

In: the workload of a scenario, a JSONL file, a dataset of the hub, or a built-in task. Out: prompts in token ids, each with its
checker. Read ``spec`` first; built-in tasks are in ``tasks``, generated prompts for chat models in ``instructions``.
"""
