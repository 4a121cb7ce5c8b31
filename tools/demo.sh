#!/usr/bin/env bash
# The main job from nothing: sets the machine up, builds, trains a network that upsamples speech, measures it against
# interpolation on clips it has not heard, and says where the pictures and the sound are. A few minutes the first time;
# the second time it measures the trained network again, in seconds.
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

tools/build.sh build
