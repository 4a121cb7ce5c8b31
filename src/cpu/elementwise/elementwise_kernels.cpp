// One loop for every MapOp, f32 and f64. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/elementwise/elementwise_kernels.hpp"

#include "cpu/elementwise/elementwise_functions.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

// The source of a row's next vector. A constant fills one vector that is read again and again (step 0), so that one loop serves
// every mix of constant and contiguous inputs.
template <class T>
struct Source {
  const T* data = nullptr;
  std::int64_t step = 0;
  alignas(kVectorBytes) T spread[kLanes<T>];
};

template <int kInputs, class T>
POLYPHASE_INLINE MapInputs<Vector<T>> load_inputs(const Source<T>* sources, std::int64_t i, Vector<T> p, Vector<T> q) {
  MapInputs<Vector<T>> in{};
  in.a = load(sources[0].data + i * sources[0].step);
  if constexpr (kInputs > 1) in.b = load(sources[1].data + i * sources[1].step);
  if constexpr (kInputs > 2) in.c = load(sources[2].data + i * sources[2].step);
  if constexpr (kInputs > 3) in.d = load(sources[3].data + i * sources[3].step);
  in.p = p;
  in.q = q;
  return in;
}

template <MapOp op, class T>
void map_row(T* out, const T* const* inputs, const bool* constant, std::int64_t count, MapScalars scalars) {
  constexpr int kInputs = inputs_of(op);
  constexpr int kStep = kLanes<T>;
  Source<T> sources[kInputs];
  for (int k = 0; k < kInputs; ++k) {
    sources[k].data = constant[k] ? sources[k].spread : inputs[k];
    sources[k].step = constant[k] ? 0 : 1;
    if (constant[k]) store(sources[k].spread, broadcast(inputs[k][0]));
  }
  const Vector<T> p = broadcast(static_cast<T>(scalars.p));
  const Vector<T> q = broadcast(static_cast<T>(scalars.q));
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) store(out + i, apply<op>(load_inputs<kInputs>(sources, i, p, q)));
  if (i == count) return;
  const std::size_t left = static_cast<std::size_t>(count - i) * sizeof(T);
  for (int k = 0; k < kInputs; ++k) {  // the rest goes through a padded vector, so that the same instructions process it
    if (constant[k]) continue;
    store(sources[k].spread, broadcast(T{1}));
    std::memcpy(sources[k].spread, inputs[k] + i, left);
    sources[k].data = sources[k].spread;
  }
  alignas(kVectorBytes) T last[kStep];
  store(last, apply<op>(load_inputs<kInputs>(sources, 0, p, q)));
  std::memcpy(out + i, last, left);
}

template <int... kOps>
struct OpList {};
// 0, 1, ... kCount - 1, as std::make_integer_sequence would give.
template <int kCount, int... kOps>
struct CountTo : CountTo<kCount - 1, kCount - 1, kOps...> {};
template <int... kOps>
struct CountTo<0, kOps...> {
  using List = OpList<kOps...>;
};

template <int... kOps>
constexpr MapKernels make_kernels(OpList<kOps...>) {
  return {{map_row<static_cast<MapOp>(kOps), float>...}, {map_row<static_cast<MapOp>(kOps), double>...}};
}

constexpr MapKernels kKernels = make_kernels(CountTo<kMapOps>::List{});

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const MapKernels& map_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
