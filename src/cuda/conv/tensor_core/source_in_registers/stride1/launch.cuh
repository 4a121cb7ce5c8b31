#pragma once
// Launches of kernel.cuh.

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// Names an instance of resident_rows_kernel.
template <class Mode, int kN>
struct RowKernel {};

template <class Mode, int kN>
void launch_rows(RowKernel<Mode, kN>, const Gather& call, const RowSteps& steps) {
  using Operand = typename Mode::Operand;
  using T = typename Operand::Source;
  const auto packed = kept_weights<Operand>(call, steps, steps.columns);
  const std::int64_t counters = steps.is_drawn ? steps.weight_tiles : 0;
  const Buffer order(Operand::kScaled ? static_cast<std::size_t>(RowOrder::words(steps)) * sizeof(std::uint32_t) : 0,
                     call.device);
  auto* const drawn = order.as<std::uint32_t>();
  const Sampled<Operand> sampled(call, drawn, counters);
  const auto* source = static_cast<const T*>(call.source);
  sampled.launch(resident_rows_kernel<Mode, kN>, steps.grid, kRowsThreads, steps.shared_bytes, call.form, steps,
                 make_row_maps(call.form, steps, source, sizeof(T)), make_store_maps(call.form, steps, call.out, sizeof(T)),
                 call.epilogue, source, packed->template as<unsigned char>(), static_cast<const T*>(call.bias),
                 static_cast<T*>(call.out), sampled.header(), sampled.exact(), RowOrder{drawn});
  check_launch("conv tensor_core: rows");
}

/// Calls run(RowKernel<Mode, kN>(), steps) with the kernel for a problem, with kLate the one with a residual or through a
/// derivative; false where there is none. `out` and `source` matter
/// only for what they are modulo 16.
template <class Operand, bool kLate = false, class Run>
bool with_rows_kernel(const TapGemm& form, const void* source, const void* out, const DeviceProperties& gpu, const Run& run) {
  const auto attempt = [&]<int kN, int kTaps>() {
    using Traits = RowTraits<Operand, kN, kTaps>;
    if (form.taps != kTaps || form.columns <= kN / 2) return false;
    const auto offset = [](const void* address) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(address) % 16); };
    const RowShape shape{Traits::kHalves,
                         kN,
                         Operand::kParts,
                         sizeof(typename Operand::Source),
                         Traits::kStagingBytes,
                         Traits::kCarryBytes,
                         Traits::kCarryPass,
                         offset(source),
                         offset(out)};
    const RowSteps steps = make_row_steps(form, shape, gpu.sm_count, gpu.shared_bytes_per_block);
    if (steps.count == 0) return false;
    const auto run_as = [&]<RowParity kParity>() {
      const auto run_with = [&]<RowStores kStores>() {
        run(RowKernel<RowMode<Operand, Traits::kHalves, kTaps, kParity, kStores>, kN>(), steps);
      };
      if constexpr (kLate) {
        run_with.template operator()<RowStores::late>();
      } else {
        if constexpr (Traits::kHalves == 2 && kParity != RowParity::mixed) {
          if (steps.store_classes != 0) return run_with.template operator()<RowStores::carried>();
        }
        run_with.template operator()<RowStores::tiles>();
      }
    };
    if (steps.parity == RowParity::even) run_as.template operator()<RowParity::even>();
    if (steps.parity == RowParity::odd) run_as.template operator()<RowParity::odd>();
    if constexpr (sizeof(typename Operand::Source) == 4) {
      if (steps.parity == RowParity::mixed) run_as.template operator()<RowParity::mixed>();
    }
    return true;
  };
  return attempt.template operator()<128, 3>() || attempt.template operator()<128, 5>();
}

/// resident_rows_gather() of f16 and bf16, and of what has a residual or goes through a derivative: compiled by themselves.
void gather_rows_of_16_bits(const Gather& call);
void gather_rows_late(const Gather& call);

template <class Operand, bool kLate = false>
void gather_rows(const Gather& call) {
  with_rows_kernel<Operand, kLate>(call.form, call.source, call.out, properties(call.device),
                                   [&](auto kernel, const RowSteps& steps) { launch_rows(kernel, call, steps); });
}

}  // namespace polyphase::cuda::tensor_core
