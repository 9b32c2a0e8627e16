"""Kernels in Triton, ours and those that torch.compile writes: compiled and launched as on a GPU, then computed by Triton's
interpreter in the same memory.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

OF_LIBDEVICE = {
    "exp": numpy.exp,
    "exp2": numpy.exp2,
    "log": numpy.log,
    "log1p": numpy.log1p,
    "sqrt": numpy.sqrt,
    "tanh": numpy.tanh,
    "rsqrt": lambda x: (1 / numpy.sqrt(x)).astype(x.dtype),
    "cos": numpy.cos,
    "sin": numpy.sin,
    "pow": numpy.power,
    "erf": numpy.vectorize(math.erf, otypes=[numpy.float32]),
    "floor": numpy.floor,
    "abs": numpy.abs,
    "isnan": numpy.isnan,
    "isinf": numpy.isinf,
}
"""NVIDIA's device library, as far as kernels of torch.compile call it."""


def _merged(outs: Any, lses: Any, empty: Any, merged: Any, COPIES: int, SHARED: int, SIZE: int) -> None:
    from harness.engine.flash_attention import merge

    merged.copy_(merge(outs, lses, empty, COPIES, SHARED))


IN_TORCH = {"harness.engine.fused_merge._merge": _merged}
"""The same in torch, for kernels whose many programs would take the interpreter minutes. Once for each choice of constants the
interpreter computes them all the same.
"""
interpreted_once: set[Any] = set()
interpreting = [False]
"""Whether the interpreter runs: then a kernel may call another function in Triton."""


class Memory(NamedTuple):
    """How arguments become what outlives the call, and are filled again; when to compute; how large a tensor may be."""

    lower: Callable[[Any], Any]
    fill: Callable[[Any], Any]
    now_or_later: Callable[[Callable[[], None]], None]
    most_values: float


@contextmanager
def launches(memory: Memory) -> Iterator[None]:
    """Launches of kernels have values, where Triton is installed."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return
    of_ours, of_inductor, called = JITFunction.run, CachingAutotuner.run, JITFunction.__call__

    def compute(kernel: Any, grid: Any, *given: Any) -> None:
        if max((one.numel() for one in tree_leaves(given) if isinstance(one, Tensor)), default=0) > memory.most_values:
            return
        memory.now_or_later(partial(_interpret, kernel, grid, tree_map(memory.lower, given), memory.fill))

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = of_ours(self, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            compute(self, grid, args, kwargs)
        return kernel

    def run_best(self: Any, *args: Any, stream: Any, benchmark_run: bool = False, **kwargs: Any) -> Any:
        # Trials of other settings do not come here, and launch on copies.
        result = of_inductor(self, *args, stream=stream, benchmark_run=benchmark_run, **kwargs)
        config = self.launchers[0].config
        passed, grid = self._interpret_args_grid(args, config)
        compute(_whole(self.fn, self.filename), grid, passed, {**kwargs, **config.kwargs})
        return result

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _rewritten(self.fn)(*args, **kwargs) if interpreting[0] else called(self, *args, **kwargs)

    JITFunction.run, CachingAutotuner.run, JITFunction.__call__ = run, run_best, call
    try:
        yield
    finally:
        JITFunction.run, CachingAutotuner.run, JITFunction.__call__ = of_ours, of_inductor, called


@cache
def _rewritten(fn: Any) -> Any:
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(fn).rewrite()


def _whole(kernel: Any, file: str) -> Any:
    """The kernel with its function, which torch.compile drops when it has machine code: from the file that it wrote."""
    return kernel if kernel.fn is not None else _loaded(file, kernel.__name__)


@cache
def _loaded(file: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{name}_again", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name).fn


def _interpret(kernel: Any, grid: Any, given: Any, fill: Callable[[Any], Any]) -> None:
    from triton.language import standard
    from triton.language.extra import libdevice
    from triton.runtime import interpreter

    args, kwargs = tree_map(fill, given)
    name = f"{kernel.fn.__module__}.{kernel.fn.__name__}"
    constants = name, *sorted((one, kwargs[one]) for one in kwargs if isinstance(kwargs[one], (int, float, bool)))
    if name in IN_TORCH and constants in interpreted_once:
        IN_TORCH[name](*args, **{one: kwargs[one] for one in kwargs if one in kernel.arg_names})
        return
    interpreted_once.add(constants)
    with ExitStack() as stack, numpy.errstate(all="ignore"):
        # tl.max and its like are functions in Triton themselves; what they call is replaced, and put back, here.
        scope = interpreter._patch_lang(standard.max.fn)
        stack.callback(scope.restore)
        for name, function in OF_LIBDEVICE.items():
            scope.set_attr(libdevice, name, partial(_elementwise, function))
        interpreting[0] = True
        stack.callback(interpreting.__setitem__, 0, False)
        interpreter.GridExecutor(_rewritten(kernel.fn), kernel.arg_names, grid)(*args, **kwargs)


def _elementwise(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """A function of the device library on tensors of the interpreter."""
    from triton import language
    from triton.runtime.interpreter import TensorHandle

    found = function(first.handle.data, *(getattr(one, "handle", one).data for one in others))
    of = language.int32 if found.dtype == bool else first.dtype
    kind = first.type.with_element_ty(of) if first.type.is_block() else of
    return language.tensor(TensorHandle(numpy.asarray(found.astype(numpy.int32) if found.dtype == bool else found), of), kind)
