#!/bin/sh
# Fails if an object compiled for one instruction set defines a weak symbol outside that instruction set's namespace: the linker would merge
# it with other copies and, for example, run AVX-512 code on a CPU without it. Usage: check_isa_symbols.sh LIBRARY.a...
# Explicit specialisations of the accessors are strong symbols and have the instruction set as a template argument.
status=0
for library in "$@"; do
  isa=$(basename "$library" .a)
  isa=${isa#libpolyphase_}
  symbols=$(nm -C --defined-only "$library") || exit 1
  case $symbols in
    *"polyphase::cpu::$isa::"*) ;;
    *) echo "$library: nothing in polyphase::cpu::$isa; is it one of the ISA libraries?"; exit 1 ;;
  esac
  bad=$(echo "$symbols" | grep -E '^[0-9a-f]+ [WVu] ' | grep -v "polyphase::cpu::$isa::" || true)
  if [ -n "$bad" ]; then
    echo "$library: weak symbols outside polyphase::cpu::$isa:"
    echo "$bad"
    status=1
  fi
done
exit $status
