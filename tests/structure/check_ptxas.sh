#!/usr/bin/env bash
# What the GPU's assembler says of the kernels: registers that spill to memory and wgmma that it had to serialise (C7510 to C7520)
# cost up to half of the speed without any other sign.
#
# usage: check_ptxas.sh BUILD_ROOT [OBJECT NAME PART...]
# Compiles the library's .cu files again with -Xptxas -v, as the build folder would, and fails on such a line; with name parts
# ("conv_direct") only those files. Kernels whose spilling is known and measured are listed in ALLOWED below, with the reason.
# Exits 77 (skipped) where the build folder has no CUDA.
set -uo pipefail

[ $# -ge 1 ] || { echo "usage: check_ptxas.sh BUILD_ROOT [OBJECT NAME PART...]" >&2; exit 2; }
build=$1
shift

# One extended regular expression a line, matched against the mangled name of the kernel.
ALLOWED=(
)

commands=$(ninja -C "$build" -t compdb 2>/dev/null | python3 -c '
import json, shlex, sys
wanted = sys.argv[1:]
seen = set()
for entry in json.load(sys.stdin):
    output = entry.get("output", "")
    if not output.endswith(".cu.o") or entry["file"] in seen or (wanted and not any(part in output for part in wanted)):
        continue
    seen.add(entry["file"])
    words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
    words[words.index("-o") + 1] = "/dev/null"
    if "-MF" in words:
        words[words.index("-MF") + 1] = "/dev/null"
    print(shlex.join(words + ["-Xptxas", "-v"]))
' "$@") || exit 1
[ -n "$commands" ] || { echo "no CUDA sources in $build"; exit 77; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
(cd "$build" && while IFS= read -r command; do eval "$command" || exit 1; done <<<"$commands") >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }

allowed=$(IFS='|'; echo "${ALLOWED[*]:-}")
awk -v allowed="$allowed" '
  /Compiling entry function/ { kernels++; name = $0; sub(/.*function .?/, "", name); sub(/. for.*/, "", name) }
  /C75(1[0-9]|20)/ { print "serialised wgmma: " $0; bad++ }
  /spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ {
    if (allowed == "" || name !~ allowed) { print "spills: " name ":" $0; bad++ }
  }
  END { printf "test cases: %d passed, %d failed, 0 skipped\n", kernels - bad, bad; exit bad > 0 || kernels == 0 }' "$log"
