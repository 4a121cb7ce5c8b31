"""Continues the training of a published vocoder on recordings of a voice.

usage: python finetune_vocoder.py MODEL OUTPUT.safetensors RECORDING.wav... [--steps N] [--seconds S] [--learning-rate R] [--seed I]

MODEL is a HiFi-GAN, BigVGAN or Vocos in any format of polyphase.load_model(). Recordings are mono WAV files of 16 bits at the model's
sampling rate. The generator alone is trained, on the distance of log mels and of spectrograms at three resolutions.
"""
import argparse
import array
import random
import sys
import wave

import polyphase as pp


def read(path, rate):
    """The samples (samples) of a recording, in [-1, 1]."""
    with wave.open(path) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, rate):
            sys.exit(f"{path}: expected a mono WAV file of 16 bits at {rate} Hz, got {file.getnchannels()} channels of "
                     f"{8 * file.getsampwidth()} bits at {file.getframerate()} Hz")
        samples = array.array("h", file.readframes(file.getnframes()))
    return pp.tensor(samples, dtype="f32") / 32768


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("output")
    arguments.add_argument("recordings", nargs="+")
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=0.4, help="of audio in a step")
    arguments.add_argument("--learning-rate", type=float, default=1e-4)
    arguments.add_argument("--seed", type=int, default=0, help="of the choice of recordings and places")
    given = arguments.parse_args()

    device = pp.best_device()
    model = pp.load_model(given.model)
    front_end = pp.load_front_end(model, given.model, device)
    net = model.net
    net.train()
    net.to(device)
    hop = net.format.samples_per_frame
    length = max(1, round(given.seconds * net.format.sampling_rate / hop)) * hop
    recordings = [read(path, net.format.sampling_rate) for path in given.recordings]
    recordings = [samples for samples in recordings if samples.numel() >= length]
    if not recordings:
        sys.exit(f"expected a recording of at least {length} samples")

    optimizer = pp.AdamW(net.parameters(), given.learning_rate, betas=(0.8, 0.99))
    schedule = pp.WarmupLR(optimizer, steps=max(1, given.steps // 20))
    random.seed(given.seed)
    for step in range(1, given.steps + 1):
        samples = random.choice(recordings)
        begin = random.randrange(samples.numel() - length + 1)
        target = samples[begin:begin + length].reshape((1, 1, length)).to(device)
        with pp.no_grad():
            mel = front_end(target).input
        audio = net(mel)[:, :, :length]
        loss = 45 * pp.l1_loss(front_end(audio).input, mel) + pp.multi_resolution_stft_loss(audio, target)
        optimizer.zero_grad()
        loss.backward()
        pp.clip_grad_norm(net.parameters(), 10)
        optimizer.step()
        schedule.step()
        if step == 1 or step % 50 == 0 or step == given.steps:
            print(f"step {step}: loss {loss.item():.4f}")
    net.eval()
    net.to("cpu")
    pp.save_model(given.output, model)


main()
