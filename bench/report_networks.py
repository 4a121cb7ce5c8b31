"""The tables of whole networks on a GPU (bench/networks): a row for each network, with every precision."""

import re

NAMES = {"hifigan_v1_gan": "HiFi-GAN V1", "hifigan_v1": "HiFi-GAN V1", "hifigan_v2": "HiFi-GAN V2", "hifigan_v3": "HiFi-GAN V3",
         "bigvgan_v2_24k_256x": "BigVGAN v2 24 kHz", "bigvgan_v2_44k_512x": "BigVGAN v2 44 kHz", "dac_44k": "DAC 44 kHz",
         "encodec_24k_stream": "EnCodec 24 kHz", "encodec_24k": "EnCodec 24 kHz", "snac_24k": "SNAC 24 kHz", "mimi_decode": "Mimi",
         "mimi_stream": "Mimi", "oobleck_2.0": "Oobleck 2.0", "vocos_24k_stream": "Vocos 24 kHz", "vocos_24k": "Vocos 24 kHz",
         "qwen3_12hz_stream": "Qwen3-TTS 12 Hz", "qwen3_12hz": "Qwen3-TTS 12 Hz"}
PRECISIONS = ("fp32", "tf32", "f16", "bf16")
PEERS = {"torch_eager": "PyTorch eager", "torch_graph": "graph"}


def label(network):
    """ "dac_44k_1x10s" -> "DAC 44 kHz, 10 s"; "mimi_stream_1x1frames" -> "Mimi, a push of a Stream, 1 frame"."""
    name = next(name for name in sorted(NAMES, key=len, reverse=True) if network.startswith(f"{name}_"))
    size = network[len(name) + 1:]
    if size == "train":
        return f"{NAMES[name]}, training step"
    if name.endswith("_gan"):
        return f"{NAMES[name]}, training step with its discriminators"
    count, length = size.split("x")
    match = re.fullmatch(r"(\d+)(s|frames)?", length)
    unit = {"s": " s", "frames": " frame" if match[1] == "1" else " frames", None: " frames"}[match[2]]
    stream = ", a push of a Stream" if name.endswith("_stream") else ""
    return f"{NAMES[name]}{stream}, {f'{count} x ' if count != '1' else ''}{match[1]}{unit}"


def time(us):
    ms = us / 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def rows(data):
    """(header, rows) of the graphs: the networks in the order of NAMES, times in ms, PyTorch's next to ours where it was measured, and
    the commits."""
    graphs = {(r["network"], r["precision"]): r for r in data["records"] if r["mode"] == "graph"}
    eager = {(r["network"], r["precision"]): r.get("peers", {}) for r in data["records"] if r["mode"] == "eager"}
    peers = {key: {**eager.get(key, {}), **record.get("peers", {})} for key, record in graphs.items()}
    known = {p: [peer for peer in PEERS if any(peer in of for (_, at), of in peers.items() if at == p)] for p in PRECISIONS}
    found = [network for network in dict.fromkeys(r["network"] for r in data["records"]) if any((network, p) in graphs for p in PRECISIONS)]
    order = list(dict.fromkeys(NAMES.values()))
    lines = []
    for network in sorted(found, key=lambda name: order.index(label(name).split(",")[0])):
        line, commits = [label(network)], []
        for precision in PRECISIONS:
            record = graphs.get((network, precision))
            line.append(time(record["us_burst"]) if record else "")
            line += [time(peers[network, precision][peer]) if record and peer in peers[network, precision] else "" for peer in known[precision]]
            commits += [record["commit"]] if record else []
        lines.append([*line, " ".join(dict.fromkeys(commits))])
    columns = [name for p in PRECISIONS for name in (f"{p} ms", *(PEERS[peer] for peer in known[p]))]
    return ["network", *columns, "commits"], lines


def update(data, results, commit, date):
    """Puts the records of `results` in the place of those of the same network, precision and mode, which leave them their peers."""
    place = {(r["network"], r["precision"], r["mode"]): i for i, r in enumerate(data["records"])}
    for record in (record for result in results for record in result["records"]):
        record = {**record, "commit": commit, "date": date}
        at = place.setdefault((record["network"], record["precision"], record["mode"]), len(data["records"]))
        if at == len(data["records"]):
            data["records"].append(record)
        else:
            old = data["records"][at]
            data["records"][at] = {**record, **{key: old[key] for key in ("peers", "peers_date") if key in old}}


def all_rows(records):
    """(header, rows): every record, with the ratio of each of its peers' times."""
    peers = list(dict.fromkeys(peer for record in records for peer in record.get("peers", {})))
    lines = [[r["network"], r["precision"], r["mode"], f"{r['us_burst'] / 1e3:.3f}", f"{r['us_sustained'] / 1e3:.3f}", f"{r['peak_mib']:.0f}",
              *(f"{r['peers'][peer] / r['us_burst']:.2f}" if peer in r.get("peers", {}) else "" for peer in peers)] for r in records]
    return ["network", "precision", "mode", "ms burst", "ms sustained", "peak MiB", *(f"x {peer}" for peer in peers)], lines


def cpu_rows(records):
    """(header, rows, ratios) of a CPU: times real time of ours and of PyTorch; the ratios with several threads."""
    times = lambda r, us: f"{r['seconds'] * 1e6 / us:.3g}"
    lines, ratios = [], []
    for r in (r for r in records if r.get("seconds") and r["direction"] == "forward"):
        us = r.get("peers", {}).get("torch_cpu")
        ratios += [us / r["us_burst"]] if us and r["threads"] > 1 else []
        lines.append([r["network"], str(r["threads"]), f"{r['us_burst'] / 1e3:.4g}", times(r, r["us_burst"]),
                      f"{us / 1e3:.4g}" if us else "", times(r, us) if us else "", f"{us / r['us_burst']:.2f}" if us else ""])
    return ["network", "threads", "ms", "times real time", "PyTorch ms", "times real time", "PyTorch over ours"], lines, ratios
