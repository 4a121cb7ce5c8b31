#pragma once
// The inner loops of an LSTM's steps, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

template <class T>
struct LstmKernels {
  /// out[r] += the product of row r of w (rows, K) and h (K), in an order that depends on K alone.
  void (*add_products)(T* out, const T* w, std::int64_t rows, const T* h, std::int64_t K);
  /// One sample's step. gates (4H): in before the activations, out after them. cell (H) is the old cell; new_hidden and
  /// new_cell (H) are the results.
  void (*cell)(T* gates, const T* cell, T* new_hidden, T* new_cell, std::int64_t H);
};

template <Isa isa, class T>
const LstmKernels<T>& lstm_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
template <class T>
const LstmKernels<T>& lstm_kernels() {
  return dispatch_isa([](auto tag) -> const LstmKernels<T>& { return lstm_kernels<tag.value, T>(); });
}
#endif

}  // namespace polyphase::cpu
