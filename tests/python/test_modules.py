"""Modules: layers, containers, modules written in Python, state, streams."""
import gc

import numpy as np
import polyphase as pp
import pytest


class Block(pp.Module):
    """x + conv(act(x))."""

    def __init__(self, channels):
        super().__init__()
        self.act = pp.Snake(channels)
        self.conv = pp.Conv1d(channels, channels, 3, padding=1)
        self.gain = pp.ones((channels, 1), requires_grad=True)
        self.count = pp.tensor(3)
        self._hidden = pp.ones((1,))

    def forward(self, x):
        return x + self.gain * self.conv(self.act(x))


class Listed(pp.Module):
    """Lists its parts itself."""

    def __init__(self):
        super().__init__()
        self.window = pp.ones((4,))
        self.layer = pp.Linear(4, 2)

    def visit(self, visitor):
        visitor.buffer("window", self.window)
        visitor.module("", self.layer)

    def forward(self, x, scale=1.0):
        return self.layer(x * self.window) * scale


def test_layers_have_pytorchs_shapes_and_names():
    up = pp.ConvTranspose1d(4, 6, 8, stride=4, padding=(2, 1), groups=2, dilation=2, output_padding=1)
    assert list(up.state_dict()) == ["weight", "bias"] and up.weight.shape == (4, 3, 8) and up.bias.shape == (6,)
    assert up(pp.zeros((2, 4, 10))).shape == (2, 6, 9 * 4 - 3 + 2 * 7 + 1 + 1)
    assert pp.ConvTranspose1d(1, 1, 4, 2, padding=1)(pp.zeros((1, 5)), output_size=11).shape == (1, 11)
    down = pp.Conv1d(4, 8, 5, padding="same", bias=False, padding_mode="reflect")
    assert down(pp.zeros((4, 10))).shape == (8, 10) and down.bias is None and list(down.state_dict()) == ["weight"]
    assert pp.Linear(3, 5, dtype="f64").weight.dtype == "f64"


@pytest.mark.parametrize("make, shape", [
    (lambda: pp.ReLU(), (2, 4, 6)), (lambda: pp.LeakyReLU(0.1), (2, 4, 6)), (lambda: pp.ELU(), (2, 4, 6)),
    (lambda: pp.GELU(True), (2, 4, 6)), (lambda: pp.SiLU(), (2, 4, 6)), (lambda: pp.Tanh(), (2, 4, 6)),
    (lambda: pp.Sigmoid(), (2, 4, 6)), (lambda: pp.Clamp(-1, 1), (2, 4, 6)), (lambda: pp.Dropout(0.2), (2, 4, 6)),
    (lambda: pp.Snake(4), (2, 4, 6)), (lambda: pp.SnakeBeta(4, alpha_logscale=True), (2, 4, 6)), (lambda: pp.GroupNorm(2, 4), (2, 4, 6)),
    (lambda: pp.LayerNorm(6), (2, 4, 6)), (lambda: pp.RMSNorm(6), (2, 4, 6)), (lambda: pp.LayerScale(4, dim=1), (2, 4, 6)),
    (lambda: pp.BatchNorm1d(4, momentum=None), (2, 4, 6)), (lambda: pp.LSTM(6, 6, num_layers=2), (2, 4, 6)),
    (lambda: pp.AntialiasedActivation(pp.SnakeBeta(4)), (2, 4, 6)), (lambda: Block(4), (2, 4, 6)), (lambda: pp.Upsample(3, "linear"), (2, 4, 18)),
    (lambda: pp.PixelShuffle1d(2), (2, 2, 12)), (lambda: pp.GLU(1), (2, 2, 6)),
    (lambda: pp.ChannelsLast(pp.Linear(4, 5)), (2, 5, 6)),
    (lambda: pp.Residual(pp.Conv1d(4, 4, 3, padding=1), scale=0.5), (2, 4, 6)),
    (lambda: pp.MeanOfBranches(pp.ReLU(), pp.Tanh()), (2, 4, 6)), (lambda: pp.SumOfBranches(pp.ReLU(), pp.Tanh()), (2, 4, 6)),
])
def test_every_module_runs(make, shape):
    x = pp.randn((2, 4, 6), requires_grad=True)
    y = make()(x)
    assert y.shape == shape
    pp.sum(pp.square(y)).backward()
    assert x.grad.shape == (2, 4, 6)


def test_containers_are_sequences_with_names():
    net = pp.Sequential(pp.Conv1d(1, 2, 3), ("act", pp.Snake(2)), ("", pp.Sequential(("last", pp.Conv1d(2, 1, 3)))))
    assert list(net.state_dict()) == ["0.weight", "0.bias", "act.alpha", "last.weight", "last.bias"]
    first = net[0]
    assert isinstance(first, pp.Conv1d) and net[0] is first and net[-3] is first and len(net) == 3
    assert [type(child).__name__ for child in net] == ["Conv1d", "Snake", "Sequential"]
    assert net.push_back(pp.ReLU()) is net and len(net) == 4
    with pytest.raises(pp.Error, match="act"):
        net.push_back(("act", pp.ReLU()))
    with pytest.raises(TypeError, match="Sequential"):
        pp.Sequential(pp.ReLU(), 3)
    with pytest.raises(IndexError, match=r"\[-4, 4\)"):
        net[4]
    with pytest.raises(pp.NotImplemented):
        pp.ModuleList(pp.ReLU())(pp.zeros(1))


def test_a_module_in_python():
    block = Block(4)
    assert list(block.state_dict()) == ["act.alpha", "conv.weight", "conv.bias", "gain", "count"]
    assert list(block.named_parameters()) == ["act.alpha", "conv.weight", "conv.bias", "gain"]
    net = pp.Sequential(block, pp.Conv1d(4, 1, 1))
    assert list(net.state_dict())[0] == "0.act.alpha" and net[0] is block
    net.to("f64")
    assert block.gain.dtype == "f64" and block.gain.requires_grad and block.conv.weight.dtype == "f64" and block._hidden.dtype == "f32"
    net.eval()
    assert not block.is_training and not block.conv.is_training
    assert net(pp.zeros((2, 4, 5), dtype="f64")).shape == (2, 1, 5)
    assert block.parameter_count() == 4 + 4 * 4 * 3 + 4 + 4


def test_a_module_that_lists_its_parts():
    net = Listed()
    assert list(net.state_dict()) == ["window", "weight", "bias"] and len(net.parameters()) == 2
    assert net(pp.ones((3, 4)), scale=2.0).shape == (3, 2)


def test_a_module_without_forward_says_so():
    class Empty(pp.Module):
        """Has no forward()."""

    with pytest.raises(NotImplementedError, match="Empty has no forward"):
        Empty()(pp.zeros((1,)))


def test_errors_pass_through_modules():
    class Broken(pp.Module):
        """Raises."""

        def forward(self, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pp.Sequential(pp.ReLU(), Broken())(pp.zeros((1, 1, 1)))


def test_containers_keep_their_children():
    net = pp.Sequential(Block(2))
    gc.collect()
    assert isinstance(net[0], Block) and net(pp.zeros((1, 2, 3))).shape == (1, 2, 3)


def test_state_is_loaded_by_name():
    a, b = Block(2), Block(2)
    b.load_state_dict(a.state_dict())
    x = pp.randn((1, 2, 5))
    assert a(x).tolist() == b(x).tolist()
    state = a.state_dict()
    state["extra"] = state.pop("gain")
    before = b.gain.tolist()
    with pytest.raises(pp.Error, match="missing: gain.*unexpected: extra"):
        b.load_state_dict(state)
    b.load_state_dict({"act.alpha": pp.zeros((2,))}, strict=False)
    assert b.act.state_dict()["alpha"].tolist() == [0, 0] and b.gain.tolist() == before


def test_weight_norm():
    net = pp.Sequential(pp.Conv1d(2, 3, 3), pp.ConvTranspose1d(3, 2, 4, 2))
    x = pp.randn((1, 2, 9))
    before = net(x).numpy() if not net(x).requires_grad else net(x).detach().numpy()
    pp.weight_norm(net)
    assert list(net.state_dict())[:3] == ["0.bias", "0.weight_g", "0.weight_v"] and net[0].has_weight_norm
    assert np.allclose(net(x).detach().numpy(), before, atol=1e-5)
    pp.remove_weight_norm(net)
    assert list(net.state_dict())[0] == "0.weight"
    with pytest.raises(pp.Error):
        pp.remove_weight_norm(net)


def test_a_stream_gives_the_bits_of_the_whole():
    net = pp.Sequential(pp.Conv1d(2, 4, 5, padding=2), pp.LeakyReLU(0.1), pp.ConvTranspose1d(4, 1, 8, stride=4, padding=2))
    x = pp.randn((1, 2, 50))
    with pp.no_grad():
        whole = net(x)
    stream = pp.Stream(net)
    pieces = [stream.push(x[:, :, a:b]) for a, b in ((0, 1), (1, 20), (20, 50))]
    pieces.append(stream.finish())
    assert pp.cat(pieces, 2).tolist() == whole.tolist()
    assert stream.latency == pp.receptive_field(net).right and stream.rate == (4, 1) and not pp.receptive_field(net).is_causal
    with pytest.raises(pp.Error):
        stream.push(x)
    stream.reset()
    stream.reserve(10)
    assert stream.push(x).shape[2] == pieces[0].shape[2] + pieces[1].shape[2] + pieces[2].shape[2]
    with pytest.raises(pp.NotImplemented, match="GroupNorm"):
        pp.Stream(pp.Sequential(pp.GroupNorm(1, 2)))
    with pytest.raises(pp.NotImplemented, match="Block is a module in Python"):
        pp.Stream(pp.Sequential(Block(2)))


def test_a_stream_keeps_its_network():
    stream = pp.Stream(pp.Sequential(pp.Conv1d(1, 1, 1)))
    gc.collect()
    assert stream.push(pp.zeros((1, 1, 4))).shape == (1, 1, 4)


def test_a_residual_unit_is_its_steps():
    x, w1, b1, w2 = pp.randn((2, 4, 16)), pp.randn((4, 4, 3)), pp.randn((4,)), pp.randn((4, 4, 5))
    w1.requires_grad = True
    unit = pp.residual_unit(x, w1, b1, w2, None, dilation=(3, 1), slope=0.2, scale=0.5)
    middle = pp.conv1d(pp.leaky_relu(x, 0.2), w1, b1, padding=3, dilation=3)
    steps = pp.conv1d(pp.leaky_relu(middle, 0.2), w2, padding=2, residual=x, scale=0.5)
    assert (unit.detach().numpy() == steps.detach().numpy()).all()
    pp.mse_loss(unit, x).backward()
    gradient = w1.grad
    w1.grad = None
    pp.mse_loss(steps, x).backward()
    assert (gradient.numpy() == w1.grad.numpy()).all()


def test_a_residual_unit_with_snake_is_its_steps():
    x, w1, w2 = pp.randn((2, 4, 16)), pp.randn((4, 4, 3)), pp.randn((4, 4, 1))
    alpha1, beta1, alpha2, beta2 = (pp.exp(pp.randn((4,))) for _ in range(4))
    unit = pp.residual_unit(x, w1, None, w2, None, activation="snake", alpha1=alpha1, beta1=beta1, alpha2=alpha2, beta2=beta2)
    middle = pp.conv1d(pp.snake_beta(x, alpha1, beta1), w1, padding=1)
    steps = pp.conv1d(pp.snake_beta(middle, alpha2, beta2), w2, residual=x)
    assert (unit.numpy() == steps.numpy()).all()


def test_a_residual_unit_averages_with_another_tensor():
    x, other, w1, w2 = pp.randn((2, 4, 16)), pp.randn((2, 4, 16)), pp.randn((4, 4, 3)), pp.randn((4, 4, 3))
    unit = pp.residual_unit(x, w1, None, w2, None)
    assert (pp.residual_unit(x, w1, None, w2, None, other=other, divisor=3.0).numpy() == ((other + unit) / 3.0).numpy()).all()
    assert (pp.residual_unit(x, w1, None, w2, None, other=other).numpy() == (other + unit).numpy()).all()
    with pytest.raises(pp.ShapeError):
        pp.residual_unit(x, w1, None, w2, None, other=pp.randn((2, 4, 8)))


def test_layers_of_an_lstm_are_single_layers():
    def weights(channels):
        return pp.randn((12, channels)), pp.randn((12, 3)), pp.randn((12,)), None
    layers, x = [weights(5), weights(3)], pp.randn((2, 4, 5))
    y, states = pp.lstm_stack(x, layers)
    first, hidden, _ = pp.lstm(x, *layers[0])
    second, _, cell = pp.lstm(first, *layers[1])
    assert (y.numpy() == second.numpy()).all()
    assert (states[0][0].numpy() == hidden.numpy()).all() and (states[1][1].numpy() == cell.numpy()).all()
    again, _ = pp.lstm_stack(x, layers, states)
    assert (again.numpy() != y.numpy()).any()


def test_a_fused_product_is_its_steps():
    x, w, b, scale, residual = pp.randn((2, 3, 8)), pp.randn((5, 8)), pp.randn((5,)), pp.randn((5,)), pp.randn((2, 3, 5))
    fused = pp.linear_fused(x, w, b, norm_epsilon=1e-5, gelu=True, scale=scale, residual=residual)
    steps = residual + scale * pp.gelu(pp.linear(pp.layer_norm(x), w, b))
    assert abs(fused.numpy() - steps.numpy()).max() < 1e-5


def test_a_norm_of_channels_is_that_of_rows():
    x, w, b = pp.randn((2, 6, 9)), pp.randn((6,)), pp.randn((6,))
    rows = pp.layer_norm(pp.tensor(x.numpy().transpose(0, 2, 1).copy()), w, b).numpy().transpose(0, 2, 1)
    assert abs(pp.layer_norm(x, w, b, dim=1).numpy() - rows).max() < 1e-5
    with pytest.raises(pp.ShapeError):
        pp.layer_norm(x, w, b, dim=2)


@pytest.mark.parametrize("make, error, text", [
    (lambda: pp.lstm_stack(pp.zeros((1, 1, 8)), []), pp.ShapeError, "at least one layer"),
    (lambda: pp.residual_unit(pp.zeros((1, 1, 8)), pp.zeros((1, 1, 2)), None, pp.zeros((1, 1, 3)), None), pp.ShapeError, "even"),
    (lambda: pp.ConvTranspose1d(0, 1, 1), pp.ShapeError, "in_channels"),
    (lambda: pp.ConvTranspose1d(1, 1, 1, padding="both"), pp.ShapeError, "both"),
    (lambda: pp.ConvTranspose1d(1, 1, 1, padding=(1, 2, 3)), pp.ShapeError, "3 numbers"),
    (lambda: pp.Conv1d(1, 1, 1, dtype="i64"), pp.DTypeError, "i64"),
    (lambda: pp.Conv1d(3, 1, 1)(pp.zeros((1, 2, 4))), pp.ShapeError, "C_in=3"),
    (lambda: pp.Dropout(2), pp.ShapeError, "p"),
    (lambda: pp.conv1d(pp.zeros((1, 1, 4)), pp.zeros((1, 1, 3)), scale=2), pp.Error, "scale"),
    (lambda: pp.conv1d(pp.zeros((1, 1, 4)), pp.zeros((1, 1, 3), dtype="f64")), pp.DTypeError, "f64"),
])
def test_bad_options_are_named(make, error, text):
    with pytest.raises(error, match=text):
        make()
