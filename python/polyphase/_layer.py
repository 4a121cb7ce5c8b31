"""A convolution without its arrays, and the check that arrays fit it: for polyphase.torch, with its symbolic sizes, and polyphase.jax."""

from typing import NamedTuple, Tuple

from polyphase import _core


class Layer(NamedTuple):
    """The numbers of a ConvTranspose1d (transposed) or a Conv1d. Hashable."""

    transposed: bool
    stride: int
    padding: Tuple[int, int]  # of the left and the right end
    output_padding: int       # 0 for Conv1d
    dilation: int
    groups: int
    precision: str            # "ieee", "fp32" or "tf32": the accuracy of f32 tensors

    @property
    def name(self):
        return "conv_transpose1d" if self.transposed else "conv1d"

    def output_length(self, length, kernel_size):
        """L_out. ConvTranspose1d: (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1; Conv1d: (L_in + P_l + P_r - D*(K - 1) - 1)/S + 1
        rounded down."""
        reach, pads = self.dilation * (kernel_size - 1), self.padding[0] + self.padding[1]
        if self.transposed:
            return (length - 1) * self.stride - pads + reach + self.output_padding + 1
        return (length + pads - reach - 1) // self.stride + 1

    def weight_shape(self, in_channels, out_channels, kernel_size):
        return (in_channels, out_channels // self.groups, kernel_size) if self.transposed else (
            out_channels, in_channels // self.groups, kernel_size)

    def in_channels(self, weight):
        """C_in from the weight's shape."""
        return weight[0] if self.transposed else weight[1] * self.groups

    def out_channels(self, weight):
        """C_out from the weight's shape."""
        return weight[1] * self.groups if self.transposed else weight[0]

    def output_shape(self, x, weight, bias=None):
        """(N, C_out, L_out) from the shapes of x (N, C_in, L_in), weight and bias. Raises ShapeError, with the numbers."""
        name, S, G = self.name, self.stride, self.groups
        _require(len(x) == 3, name, "expected input (N, C_in, L_in) or (C_in, L_in), got {}", tuple(x))
        _require(len(weight) == 3, name, "expected weight {}, got {}", self._weight_words(), tuple(weight))
        _require(S >= 1 and self.dilation >= 1 and G >= 1, name, "expected stride, dilation and groups >= 1, got {}, {} and {}", S,
                 self.dilation, G)
        _require(min(self.padding) >= 0, name, "expected padding >= 0, got {}", self.padding)
        if self.transposed:
            _require(0 <= self.output_padding and self.output_padding < max(S, self.dilation), name,
                     "expected 0 <= output_padding < max(stride, dilation) = {}, got {}", max(S, self.dilation), self.output_padding)
        _require(x[1] == self.in_channels(weight), name, "expected input of {} channels for weight {} and groups={}, got {}",
                 self.in_channels(weight), tuple(weight), G, tuple(x))
        _require(weight[0] >= 1 and weight[1] >= 1 and weight[2] >= 1 and weight[0] % G == 0, name,
                 "expected weight {} whose first size groups={} divides, got {}", self._weight_words(), G, tuple(weight))
        channels = self.out_channels(weight)
        _require(bias is None or tuple(bias) == (channels,), name, "expected bias (C_out={}), got {}", channels,
                 None if bias is None else tuple(bias))
        length = self.output_length(x[2], weight[2])
        _require(x[2] >= 1 and length >= 1, name, "expected an input and an output of at least one position, got L_in={} and L_out={}",
                 x[2], length)
        return (x[0], channels, length)

    def problem(self, x, weight):
        """What the functions of polyphase._core take."""
        return (self.transposed, x[0], x[1], self.out_channels(weight), x[2], weight[2], self.stride, *self.padding, self.output_padding,
                self.dilation, self.groups)

    def _weight_words(self):
        return "(C_in, C_out/groups, K)" if self.transposed else "(C_out, C_in/groups, K)"


def _require(condition, name, message, *values):
    if not condition:
        raise _core.ShapeError(f"{name}: " + message.format(*values))


def single(name, what, value):
    """An integer that may also be given as a sequence of one."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise _core.ShapeError(f"{name}: expected {what} of one number, got {tuple(value)}")
        return value[0]
    return value


def both_ends(name, padding, kernel_size, stride, dilation):
    """(left, right) of a number, a sequence of one or two, "valid" or "same"."""
    if isinstance(padding, str):
        if padding == "valid":
            return (0, 0)
        if padding != "same" or stride != 1:
            raise _core.ShapeError(f"{name}: expected padding as numbers, 'valid', or 'same' with stride 1, got {padding!r} with "
                                   f"stride {stride}")
        total = dilation * (kernel_size - 1)
        return (total // 2, total - total // 2)
    if isinstance(padding, (tuple, list)):
        if len(padding) not in (1, 2):
            raise _core.ShapeError(f"{name}: expected padding of one or two numbers, got {tuple(padding)}")
        return (padding[0], padding[-1])
    return (padding, padding)
