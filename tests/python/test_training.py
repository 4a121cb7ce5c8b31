"""Training: optimizers, schedules, averages, scaling, losses, checkpoints."""
import numpy as np
import polyphase as pp
import pytest


def network():
    pp.manual_seed(3)
    return pp.Sequential(pp.Conv1d(1, 8, 5, padding=2), pp.LeakyReLU(0.1), pp.ConvTranspose1d(8, 1, 8, stride=4, padding=2))


def step_of(net, optimizer, low, high):
    loss = pp.mse_loss(net(low), high)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.fixture(name="data")
def fixture_data():
    high = pp.sin(pp.arange(64) * 0.2).reshape((1, 1, 64))
    return high[:, :, ::4].contiguous(), high


@pytest.mark.parametrize("make", [
    lambda p: pp.Adam(p, learning_rate=1e-2), lambda p: pp.AdamW(p, 1e-2, betas=(0.8, 0.99)),
    lambda p: pp.SGD(p, 0.05, momentum=0.9, nesterov=True),
    lambda p: pp.Adam([pp.ParameterGroup(p[:1], learning_rate=1e-3), pp.ParameterGroup(p[1:])], 1e-2),
])
def test_a_network_learns(data, make):
    net = network()
    optimizer = make(net.parameters())
    losses = [step_of(net, optimizer, *data) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0] and optimizer.steps == 60


def test_adam_is_the_formula():
    w = pp.tensor([1.0, -2.0], dtype="f64", requires_grad=True)
    optimizer = pp.Adam([w], learning_rate=0.1, betas=(0.9, 0.99), epsilon=1e-8)
    value, m, v = np.array([1.0, -2.0]), 0, 0
    for t in range(1, 4):
        optimizer.zero_grad()
        pp.sum(w * w * w).backward()
        optimizer.step()
        g = 3 * value**2
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        value = value - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
        assert np.allclose(w.detach().numpy(), value, rtol=1e-12)


def test_groups_and_rates():
    a, b = pp.ones((1,), requires_grad=True), pp.ones((1,), requires_grad=True)
    optimizer = pp.SGD([pp.ParameterGroup([a], learning_rate=0.5), pp.ParameterGroup([b], weight_decay=0.1)], 0.25)
    assert [optimizer.learning_rate(g) for g in range(optimizer.group_count)] == [0.5, 0.25]
    assert optimizer.weight_decay(1) == 0.1 and optimizer.initial_learning_rate(0) == 0.5
    optimizer.set_learning_rate(0.125)
    optimizer.set_learning_rate(1.0, group=1)
    assert optimizer.learning_rate(0) == 0.125 and optimizer.learning_rate(1) == 1
    assert len(optimizer.parameters()) == 2
    with pytest.raises(pp.ShapeError):
        optimizer.learning_rate(2)
    with pytest.raises(pp.ShapeError, match="learning_rate|learning rate"):
        optimizer.set_learning_rate(-1.0)
    with pytest.raises(TypeError, match="ParameterGroup"):
        pp.SGD([1, 2])


def test_schedules():
    optimizer = pp.SGD([pp.ones((1,), requires_grad=True)], 1.0)
    schedules = [pp.StepLR(optimizer, 2, gamma=0.5), pp.ExponentialLR(optimizer, 0.5), pp.CosineAnnealingLR(optimizer, 4)]
    assert [schedules[0].learning_rate(1.0, s) for s in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert schedules[1].learning_rate(1.0, 3) == 0.125 and abs(schedules[2].learning_rate(1.0, 2) - 0.5) < 1e-15
    for then, third in ((None, 1.0), (pp.ExponentialLR(optimizer, 0.5), 0.5), (schedules[0], 1.0), (schedules[2], None)):
        warm = pp.WarmupLR(optimizer, 2, then)
        assert warm.learning_rate(1.0, 0) == 0.5
        assert third is None or warm.learning_rate(1.0, 3) == third
    del optimizer  # a schedule keeps it
    schedules[1].step()
    assert schedules[1].steps == 1
    with pytest.raises(pp.ShapeError):
        pp.StepLR(pp.SGD([pp.ones((1,), requires_grad=True)]), 0)


def test_clipping_and_averages():
    w = pp.tensor([3.0, 4.0], requires_grad=True)
    pp.sum(w * pp.tensor([3.0, 4.0])).backward()
    assert pp.clip_grad_norm([w], 1.0).item() == 5 and abs(w.grad[0].item() - 0.6) < 1e-6
    average = pp.ExponentialMovingAverage([w], decay=0.5)
    with pp.no_grad():
        w.fill_(0)
    average.update()
    average.apply()
    assert w.tolist() == [1.5, 2] and average.is_applied and average.updates == 1
    average.restore()
    assert w.tolist() == [0, 0]
    with pytest.raises(pp.Error):
        average.restore()


def test_loss_scaling(data):
    net = network()
    optimizer, scaler = pp.Adam(net.parameters(), 1e-2), pp.GradScaler(initial_scale=1024)
    losses = []
    for _ in range(40):
        with pp.AutocastGuard("f16"):
            loss = pp.mse_loss(net(data[0]), data[1])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale(optimizer)
        pp.clip_grad_norm(net.parameters(), 10)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and scaler.current_scale == 1024 and scaler.growth_tracker == 40 and scaler.skipped == 0


def test_losses():
    a, b = pp.tensor([1.0, 4.0]), pp.tensor([2.0, 2.0])
    assert pp.mse_loss(a, b).item() == 2.5 and pp.mse_loss(a, b, "sum").item() == 5 and pp.mse_loss(a, b, "none").tolist() == [1, 4]
    assert pp.l1_loss(a, b).item() == 1.5 and pp.smooth_l1_loss(a, b).item() == 1
    x, y = pp.randn((1, 600)), pp.randn((1, 600))
    assert pp.multi_resolution_stft_loss(x, y, [(256, 64, 256)]).item() > 0
    assert pp.multi_resolution_stft_loss(x, x, [(256, 64, 256)]).item() == 0
    with pytest.raises(pp.ShapeError):
        pp.mse_loss(a, pp.zeros((3,)))
    with pytest.raises(pp.Error, match="mean, sum or none"):
        pp.mse_loss(a, b, "average")


def test_a_run_continues_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path, data):
    def objects():
        net = network()
        optimizer = pp.AdamW(net.parameters(), 1e-2)
        return net, optimizer, pp.CosineAnnealingLR(optimizer, 20), pp.ExponentialMovingAverage(net.parameters())

    def train(parts, steps):
        net, optimizer, schedule, average = parts
        for _ in range(steps):
            step_of(net, optimizer, data[0] + 0.01 * pp.randn((1, 1, 16)), data[1])
            schedule.step()
            average.update()

    parts = objects()
    train(parts, 5)
    names = ("optimizer", "schedule", "average")
    path = str(tmp_path / "run.ckpt")
    pp.save_checkpoint(path, parts[0].state_dict(), {n: p.state() for n, p in zip(names, parts[1:])},
                       {"default": pp.default_generator().state}, step=5, numbers={"best": 0.25}, texts={"note": "é"})
    train(parts, 5)
    saved = pp.load_checkpoint(path)
    again = objects()
    again[0].load_state_dict(saved["model"])
    for name, part in zip(names, again[1:]):
        part.load_state(saved["states"][name])
    pp.default_generator().state = saved["generators"]["default"]
    train(again, 5)
    assert saved["step"] == 5 and saved["numbers"] == {"best": 0.25} and saved["texts"] == {"note": "é"}
    for key, value in parts[0].state_dict().items():
        assert value.tolist() == again[0].state_dict()[key].tolist()
    with pytest.raises(pp.Error, match="tensors and numbers"):
        again[1].load_state({})
