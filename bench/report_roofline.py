"""The picture of a whole network's roofline (network_roofline.cpp)."""

import json
import subprocess


def draw(path, picture):
    """Draws with gnuplot, from the JSON at `path`, two bars for each part: its time, and in it the time that a matrix product and a copy
    would need for its work and its bytes."""
    data = json.loads(path.read_text(encoding="utf-8"))
    parts = data["parts"]
    lines = "\n".join(f'{-i} {part["us"] / 1e3:.6g} {part["floor_us"] / 1e3:.6g} "{(part["name"] + "  " + part["what"]).strip()}"'
                      for i, part in enumerate(parts))
    total, floor = (sum(part[key] for part in parts) / 1e3 for key in ("us", "floor_us"))
    launches = sum(part["launches"] for part in parts)
    title = (f"{data['network']} in {data['precision']} on {data['device']}: {total:.4g} ms{f' in {launches} launches' if launches else ''}, "
             f"{floor:.4g} ms at {data['tflop_s']:.3g} TFLOP/s and {data['copy_gb_s']:.4g} GB/s")
    script = f"""set terminal pngcairo size 1000,{95 + 15 * len(parts)} font 'sans,9' noenhanced
set output '{picture}'
set title "{title}"
set xlabel 'ms'
set xrange [0:*]
set yrange [{-len(parts)}:1]
set grid xtics
set style fill solid
set key bottom right
$parts << end
{lines}
end
plot $parts using (0):1:(0):2:($1-0.38):($1+0.38):ytic(4) with boxxyerror linecolor rgb 0xf0b070 title 'measured', \\
     $parts using (0):1:(0):3:($1-0.2):($1+0.2) with boxxyerror linecolor rgb 0x2e6e8b title 'at the rate of a matrix product or a copy'
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
