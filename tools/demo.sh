#!/usr/bin/env bash
# The main example from nothing: sets the machine up, builds, trains a network that upsamples speech, measures it against interpolation on
# clips that were not in the training data, and prints where the pictures and the sound are. Before the training begins it prints how long
# it will take (two minutes on two cores with AVX-512, seven with AVX2). The second time the trained network is only measured again, in
# seconds.
#
# usage: tools/demo.sh [--fresh]      --fresh trains again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fresh=no
case "${1:-}" in
  "") ;;
  --fresh) fresh=yes ;;
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "tools/$(basename "$0")"
    exit 0
    ;;
  *)
    echo "demo: unknown option $1 (known: --fresh --help)" >&2
    exit 2
    ;;
esac

run=runs/demo
superres=build/examples/superres/superres

tools/build.sh build --target examples/superres/superres

[ $fresh = no ] || rm -rf $run
if [ -f $run/finished ]; then
  echo "demo: $run holds a trained network, so it is only measured (tools/demo.sh --fresh trains again)"
else
  resume=()
  if [ -f $run/last.safetensors ]; then
    echo "demo: going on with the training in $run"
    resume=(--resume)
  fi
  status=0
  $superres train --data examples/superres/data --out $run "${resume[@]}" || status=$?
  if [ $status = 130 ]; then
    echo "demo: stopped; run tools/demo.sh again to go on" >&2
    exit $status
  fi
  [ $status = 0 ] || exit 1
  touch $run/finished
fi

$superres eval --model $run/best.safetensors --json $run/scores.json
low=$(find $run/eval -name '*.low.wav' | sort | head -n 1)
$superres upsample "$low" $run/upsampled.wav --model $run/best.safetensors
cat <<END

Listen    ${low%.low.wav}.{low,sinc,network,original}.wav
Look      $run/eval/*.png
Your own  $superres upsample IN.wav OUT.wav --model $run/best.safetensors
END
