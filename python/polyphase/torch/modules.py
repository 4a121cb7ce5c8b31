"""torch's layers with polyphase's convolutions."""

from torch import nn

from . import functional
from .gradients import is_compiling
from .precision import check as check_precision
from .precision import current_precision


class ConvTranspose1d(nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d with polyphase's convolution: same arguments, parameters, random numbers and state_dict.

    precision: "ieee", "fp32" or "tf32", for float32; None (default): that of polyphase.torch.precision(). It is an attribute, which may be
    set at any time.
    """

    precision = None

    def __init__(self, *args, precision=None, **named):
        super().__init__(*args, **named)
        _set_precision(self, precision)

    def forward(self, input, output_size=None):
        if output_size is None:
            return functional.convolve(_layer_of(self, True), input, self.weight, self.bias)
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 1, self.dilation)[0]
        return functional.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups,
                                           self.dilation, precision=self.precision)

    def forward_activated(self, input, activation="none", **output):
        """forward() and what follows it: the arguments of polyphase.torch.conv_transpose1d from `activation` on."""
        return functional.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups,
                                           self.dilation, precision=self.precision, activation=activation, **output)

    def extra_repr(self):
        return _with_precision(self, super().extra_repr())


class Conv1d(nn.Conv1d):
    """torch.nn.Conv1d with polyphase's convolution: same arguments, parameters, random numbers and state_dict. As ConvTranspose1d here."""

    precision = None

    def __init__(self, *args, precision=None, **named):
        super().__init__(*args, **named)
        _set_precision(self, precision)

    def forward(self, input):
        if self.padding_mode != "zeros":
            return self.forward_activated(input)
        return functional.convolve(_layer_of(self, False), input, self.weight, self.bias)

    def forward_activated(self, input, activation="none", **output):
        """forward() and what follows it: the arguments of polyphase.torch.conv1d from `activation` on."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0
        return functional.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups,
                                 precision=self.precision, activation=activation, **output)

    def extra_repr(self):
        return _with_precision(self, super().extra_repr())


def _layer_of(module, transposed):
    """The module's numbers as a Layer. It is kept with what it was made from: checking the numbers takes longer than a small convolution."""
    padding = module.padding
    given = (module.stride, padding, module.output_padding if transposed else 0, module.dilation, module.groups,
             module.precision or current_precision(), module.weight.shape[-1] if isinstance(padding, str) else 0)
    if is_compiling():
        return functional.make_layer(transposed, *given)
    kept = module.__dict__.get("_kept_layer")
    if kept is not None and kept[0] == given:
        return kept[1]
    layer = functional.make_layer(transposed, *given)
    if not any(isinstance(value, list) for value in given):  # which may change without being another
        module.__dict__["_kept_layer"] = given, layer
    return layer


def _set_precision(module, precision):
    if precision is not None:
        module.precision = check_precision(precision)


def _with_precision(module, text):
    return text if module.precision is None else f"{text}, precision={module.precision}"
