#!/usr/bin/env bash
# Fine-tunes the published HiFi-GAN on the clips in the repository, from nothing: sets the machine up, builds the vocoder, fetches the universal
# generator by name, trains it against new discriminators, and compares it with the published one on held-out clips, in runs/demo_finetune.
# Uses a GPU if there is one. The first run needs a network; the second time it continues.
#
# usage: tools/demo_finetune.sh [STEPS] [OPTION OF vocoder train...]      STEPS: in all (default 200 with a GPU, 20 without)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "demo_finetune: $*" >&2
  exit 2
}

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "tools/$(basename "$0")"
    exit 0
    ;;
esac

device=cpu size=(--batch 2 --segment 4096) steps=20
if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus 2>/dev/null | grep -q .; then device=cuda size=(--batch 16) steps=200; fi
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  steps=$1
  shift
fi
[[ $steps =~ ^[1-9][0-9]*$ ]] || die "expected STEPS of at least 1, got '$steps'"

if [[ " $* " =~ " --batch"|" --segment"|" --resume" ]]; then size=(); fi

run=runs/demo_finetune
vocoder=build/examples/vocoder/vocoder

tools/build.sh build --target examples/vocoder/vocoder
mkdir -p $run

fetch() { python3 tools/fetch_weights.py "$1" || { echo "demo_finetune: the published weights are not to be had; try again with a network" >&2; exit 1; }; }
weights=$(fetch hifigan_universal)

if [ -f $run/last.safetensors ]; then
  $vocoder train --resume --out $run --steps "$steps" --device $device "$@"
else
  $vocoder train --config hifigan_v1 --generator "$weights" --steps "$steps" "${size[@]}" --device $device --out $run "$@"
fi

echo
echo "published, held-out clips:"
$vocoder evaluate --model "$weights" --config examples/vocoder/configs/hifigan_v1.json --out $run/published --device $device
echo "fine-tuned:"
$vocoder evaluate --model $run/best.safetensors --out $run/finetuned --device $device

cat <<END

Listen    $run/finetuned/*.vocoder.wav, $run/published/*.vocoder.wav
Go on     tools/demo_finetune.sh $((2 * steps))
END
