"""Kernels of our own for CPUs, in C++: built once per machine, called by address.

In: tensors on a CPU. Out: what a forward of few tokens yields, and what its logits say. Open ``library`` first.
"""
