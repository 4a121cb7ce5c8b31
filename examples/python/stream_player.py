"""Plays a vocoder's speech while it is computed.

usage: python stream_player.py MODEL MEL.npy [--frames N] | aplay -q -f S16_LE -r 22050

Reads mel frames (rows, frames) a few at a time, as they would come from a model in front, and writes samples of 16 bits to the standard
output as soon as no later frame can change them. Says on the standard error how much faster than real time that is.
"""
import argparse
import array
import sys
import time

import polyphase as pp


def play(audio):
    """Writes (1, 1, samples) in [-1, 1]."""
    if audio.numel() > 0:
        samples = pp.clamp(audio * 32767, -32768, 32767).flatten().tolist()
        sys.stdout.buffer.write(array.array("h", map(round, samples)).tobytes())
        sys.stdout.buffer.flush()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("mel")
    arguments.add_argument("--frames", type=int, default=8, help="in a piece")
    given = arguments.parse_args()

    net = pp.load_model(given.model).net
    net.to(pp.best_device())
    mel = pp.load_npy(given.mel).to("f32").reshape((1, net.format.rows, -1)).to(pp.best_device())
    stream = pp.Stream(net)
    stream.reserve(given.frames)
    begin = time.monotonic()
    for first in range(0, mel.shape[2], given.frames):
        play(stream.push(mel[:, :, first:first + given.frames]).cpu())
    play(stream.finish().cpu())
    if net.format.sampling_rate:
        seconds = mel.shape[2] * net.format.samples_per_frame / net.format.sampling_rate
        print(f"{seconds:.2f} s of audio, {seconds / (time.monotonic() - begin):.1f} times faster than real time, "
              f"latency {stream.latency} frames", file=sys.stderr)


main()
