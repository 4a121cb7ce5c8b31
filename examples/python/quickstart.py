"""A network learns to upsample signals four times.   usage: python quickstart.py [MODEL.safetensors]"""
import sys

import polyphase as pp


def batch(device):
    """high (8, 1, 256): sums of three sines; low (8, 1, 64): every fourth sample."""
    time = pp.arange(256)
    waves = [pp.sin(pp.uniform((8, 1, 1), 0.06, 0.75) * time + pp.uniform((8, 1, 1), 0, 6.28)) for _ in range(3)]
    high = (waves[0] + waves[1] + waves[2]) / 3
    return high[:, :, ::4].contiguous().to(device), high.to(device)


device = pp.best_device()  # "cuda:0" if there is one, else "cpu"
pp.manual_seed(1)
net = pp.Sequential(
    pp.Conv1d(1, 64, 7, padding=3), pp.LeakyReLU(0.1),
    pp.ConvTranspose1d(64, 32, 8, stride=4, padding=2), pp.LeakyReLU(0.1),
    pp.Conv1d(32, 1, 7, padding=3), pp.Tanh())
net.to(device)
optimizer = pp.Adam(net.parameters(), learning_rate=1e-3)
for step in range(1, 201):
    low, high = batch(device)
    loss = pp.mse_loss(net(low), high)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.5f}")
pp.save_safetensors(sys.argv[1] if len(sys.argv) > 1 else "model.safetensors", net.state_dict())
