#!/usr/bin/env bash
# Speech by a published vocoder, from nothing: sets the machine up, builds the polyphase command, fetches HiFi-GAN's universal generator by
# name, and makes speech from the mel of a clip in the repository, with a spectrogram, in runs/demo_vocoder. The first run needs a network.
#
# usage: tools/demo_vocoder.sh [FILE]      FILE: another recording, or a mel (.npy, .pt)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "tools/$(basename "$0")"
    exit 0
    ;;
  -*)
    echo "demo_vocoder: unknown option $1 (known: --help)" >&2
    exit 2
    ;;
esac

run=runs/demo_vocoder
polyphase=build/tool/polyphase

tools/build.sh build --target tool/polyphase
mkdir -p $run

fetch() { python3 tools/fetch_weights.py "$1" || { echo "demo_vocoder: the published weights are not to be had; try again with a network" >&2; exit 1; }; }
weights=$(fetch hifigan_universal)
config=$(fetch hifigan_config)
input=${1:-examples/superres/data/heldout/slt_13.flac}

$polyphase convert "$weights" $run/hifigan.safetensors --config "$config"
$polyphase run $run/hifigan.safetensors "$input" $run/speech.wav --picture $run/speech.png

cat <<END

Listen    $run/speech.wav
Look      $run/speech.png
Your own  $polyphase run $run/hifigan.safetensors MEL.npy OUT.wav
END
