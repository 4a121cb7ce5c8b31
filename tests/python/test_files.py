"""Files, and published networks made from them."""
import json
import signal

import numpy as np
import polyphase as pp
import pytest

HIFIGAN = json.dumps({
    "resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 16,
    "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]], "num_mels": 8, "sampling_rate": 8000,
    "n_fft": 64, "hop_size": 8, "win_size": 64, "fmin": 0, "fmax": 4000})


def test_safetensors_both_ways(tmp_path):
    path = str(tmp_path / "a.safetensors")
    tensors = {"x": pp.arange(6).reshape((2, 3)).transpose(0, 1), "half": pp.ones((2,), dtype="bf16"), "n": pp.tensor([1, 2])}
    pp.save_safetensors(path, tensors, {"note": "two"})
    read, metadata = pp.load_safetensors(path)
    assert metadata == {"note": "two"} and list(read) == ["x", "half", "n"]
    for name, tensor in tensors.items():
        assert read[name].tolist() == tensor.tolist() and read[name].dtype == tensor.dtype
    read["x"].fill_(0)
    assert pp.load_weights(path)["x"].tolist() == tensors["x"].tolist()


def test_npy_is_numpys(tmp_path):
    path = str(tmp_path / "a.npy")
    a = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.save(path, a)
    assert np.array_equal(pp.load_npy(path).numpy(), a)
    pp.save_npy(path, pp.tensor(a * 2))
    assert np.array_equal(np.load(path), a * 2)


@pytest.mark.parametrize("content, text", [(b"", "safetensors"), (b"\xff" * 8 + b"{}", "header"), (b"\x02" + b"\0" * 7 + b"[]", "")])
def test_broken_files_are_named(tmp_path, content, text):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(pp.FormatError, match="broken.safetensors") as caught:
        pp.load_safetensors(str(path))
    assert text in str(caught.value)
    with pytest.raises(ValueError, match="nowhere"):
        pp.load_checkpoint(str(tmp_path / "nowhere"))


def test_a_published_network_from_its_file(tmp_path):
    net = pp.make_network("hifigan", HIFIGAN)
    assert isinstance(net, pp.HifiGan) and "hifigan" in pp.network_names()
    assert net.format.input == "mel" and net.format.rows == 8 and net.format.samples_per_frame == 8
    net.eval()
    pp.save_safetensors(str(tmp_path / "generator.safetensors"), net.state_dict())
    (tmp_path / "config.json").write_text(HIFIGAN, encoding="utf-8")
    model = pp.load_model(str(tmp_path / "generator.safetensors"))
    mel = pp.randn((1, 8, 12))
    with pp.no_grad():
        audio = net(mel)
        assert model.network == "hifigan" and model.net(mel).tolist() == audio.tolist()
    pp.save_model(str(tmp_path / "alone.safetensors"), model)
    assert pp.load_model(str(tmp_path / "alone.safetensors")).config == model.config
    front_end = pp.load_front_end(model, str(tmp_path / "generator.safetensors"))
    made = front_end(pp.randn((1, 1, 160)))
    assert made.input.shape == (1, 8, 20) and made.scales is None
    model.net.set_scales(None)
    with pytest.raises(pp.FormatError, match="nowhere"):
        pp.load_model(str(tmp_path / "nowhere"))


def test_decoding_piece_by_piece_is_the_whole():
    net = pp.HifiGan(HIFIGAN)
    mel = pp.randn((1, 8, 20))
    pieces = []
    pp.decode(net, mel, pieces.append, frames_at_a_time=3)
    with pp.no_grad():
        assert len(pieces) > 1 and pp.cat(pieces, 2).tolist() == net(mel).tolist()

    def broken(audio):
        raise KeyError("sink")

    with pytest.raises(KeyError, match="sink"):
        pp.decode(net, mel, broken, frames_at_a_time=3)


def test_ctrl_c_ends_a_decoding():
    net, pieces = pp.HifiGan(HIFIGAN), []

    def sink(audio):
        pieces.append(audio)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with Ctrl-C ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            pp.decode(net, pp.randn((1, 8, 40)), sink, frames_at_a_time=3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(pieces) == 1


@pytest.mark.parametrize("make, error, text", [
    (lambda: pp.make_network("wavenet", "{}"), pp.FormatError, "hifigan"),
    (lambda: pp.HifiGan("{}"), pp.FormatError, "resblock"),
    (lambda: pp.HifiGan("not json"), pp.FormatError, "parse error"),
    (lambda: pp.load_model("/nowhere"), pp.FormatError, "/nowhere"),
    (lambda: pp.HifiGan(HIFIGAN)(pp.zeros((1, 7, 4))), pp.ShapeError, "8"),
    (lambda: pp.HifiGan(HIFIGAN).load_published({}), pp.Error, "missing"),
])
def test_what_does_not_fit_is_named(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_codec_both_ways():
    config = json.dumps({"encoder_dim": 4, "encoder_rates": [2, 2], "decoder_dim": 16, "decoder_rates": [2, 2], "n_codebooks": 2,
                         "codebook_size": 8, "codebook_dim": 4, "sample_rate": 8000})
    codec, audio = pp.Dac(config), pp.randn((1, 1, 32))
    codec.eval()
    with pp.no_grad():
        codes = codec.encode(audio)
        assert codes.shape == (1, 2, 8) and codes.dtype == "i64"
        assert codec.decode(codes).tolist() == codec(audio).tolist()
    with pytest.raises(pp.DTypeError, match="i64"):
        pp.DacDecoder(config)(pp.zeros((1, 2, 8)))


def test_a_codec_of_segments():
    config = json.dumps({"sample_rate": 8000, "seanet": {"n_filters": 4, "dimension": 8, "ratios": [2, 2]},
                         "quantizer": {"bins": 8, "dimension": 8, "n_q": 2}})
    encoder, decoder = pp.EncodecEncoder(config), pp.Encodec(config)
    with pp.no_grad():
        segments = encoder.encode(pp.randn((1, 1, 64)))
        assert len(segments) == 1 and segments[0].codes.dtype == "i64" and segments[0].scale is None
        assert decoder.decode(segments).shape == (1, 1, 64)
