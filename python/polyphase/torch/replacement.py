"""Replaces a model's convolutions in place, and back.

A layer stays the object that it is; only its class changes. So parameters, hooks (the older weight norm and spectral norm are hooks),
parametrizations (the newer ones), references from other modules, optimizers and averaged copies stay as they are.
"""

from dataclasses import dataclass, field
from typing import Dict, List

import torch
from torch import nn

from polyphase import _core

from . import kernels
from .modules import Conv1d, ConvTranspose1d
from .precision import check as check_precision

_OURS = {nn.ConvTranspose1d: ConvTranspose1d, nn.Conv1d: Conv1d}
_TORCHS = {ours: theirs for theirs, ours in _OURS.items()}


@dataclass
class Report:
    """What replace() or restore() did. Prints as a table."""

    replaced: List[str] = field(default_factory=list)  # names, as in named_modules()
    left: Dict[str, str] = field(default_factory=dict)  # name: why
    title: str = "replaced"

    def __str__(self):
        lines = [f"{len(self.replaced)} layers {self.title}, {len(self.left)} left"]
        width = max((len(name) for name in (*self.replaced, *self.left)), default=0)
        lines += [f"  {name:{width}}  {self.title}" for name in self.replaced]
        lines += [f"  {name:{width}}  left: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)

    __repr__ = __str__


def replace(model, precision=None):
    """Makes every nn.ConvTranspose1d and nn.Conv1d in `model` (itself too) a polyphase.torch layer, in place. Returns a Report.

    Layers with weight norm or spectral norm of either spelling are replaced too. Left are subclasses with a forward() of their own,
    layers without weights yet, and layers of dtypes or devices that polyphase does not compute.

    precision: the layers' attribute; None: that of polyphase.torch.precision().
    """
    if precision is not None:
        check_precision(precision)
    report = Report()
    for name, module in model.named_modules():
        if not isinstance(module, (nn.modules.conv._ConvNd,)) or isinstance(module, tuple(_TORCHS)):
            continue
        reason = _reason_to_leave(module)
        if reason:
            report.left[name] = reason
            continue
        _set_class(module, _OURS)
        if precision is not None:
            module.precision = precision
        report.replaced.append(name)
    return report


def restore(model):
    """Makes every polyphase.torch layer in `model` torch's own again, in place. Returns a Report."""
    report = Report(title="restored")
    for name, module in model.named_modules():
        if not isinstance(module, tuple(_TORCHS)):
            continue
        if _plain_class(module) not in _TORCHS:
            report.left[name] = f"{_plain_class(module).__name__} is a subclass of polyphase.torch's layer"
            continue
        _set_class(module, _TORCHS)
        for own in ("precision", "_kept_layer"):
            module.__dict__.pop(own, None)
        report.replaced.append(name)
    return report


def _is_parametrized(module):
    """Whether torch.nn.utils.parametrize has given the layer a class of its own, derived from the layer's."""
    return "parametrizations" in module._modules and type(module).__name__.startswith("Parametrized")


def _plain_class(module):
    return type(module).__bases__[0] if _is_parametrized(module) else type(module)


def _set_class(module, classes):
    """The class that `classes` has for the layer's. A parametrized layer's own class, whose properties compute the weights, is made again."""
    if not _is_parametrized(module):
        module.__class__ = classes[type(module)]
        return
    old, base = type(module), classes[_plain_class(module)]
    members = {key: value for key, value in vars(old).items() if key not in ("__dict__", "__weakref__")}
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)


def _reason_to_leave(module):
    """Why a convolution is not replaced; empty if nothing speaks against it."""
    cls = _plain_class(module)
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        return f"{cls.__name__} has no weight before its first call"
    if cls not in _OURS:
        if isinstance(module, tuple(_OURS)):
            return f"{cls.__name__} is a subclass, whose forward() may differ"
        return f"{cls.__name__} is not a convolution along one dimension"
    weight = next((p for p in module.parameters() if p.is_floating_point() or p.is_complex()), None)
    if weight is None:
        return ""
    if weight.dtype not in kernels.DTYPES:
        return f"its weight is {weight.dtype}; expected float32, float64, float16 or bfloat16"
    if weight.device.type not in ("cpu", "cuda", "meta"):
        return f"its weight is on {weight.device}; expected the CPU or a CUDA device"
    if weight.is_cuda and not _core._with_cuda:
        return f"its weight is on {weight.device}, and this build of polyphase has no CUDA"
    return ""
