#include "cpu/elementwise/elementwise.hpp"

#include <algorithm>
#include <array>

#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_kernels.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kShortRow = 64;  // shorter rows are gathered into blocks first
constexpr int kMaxInputs = kMaxOperands - 1;

// One piece of work for a row function: contiguous output, inputs contiguous or constant.
struct Piece {
  char* out = nullptr;
  std::array<const char*, kMaxInputs> inputs{};
  std::array<bool, kMaxInputs> constant{};
};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The op's row function for a dtype, with its buffers; 16-bit types are converted to f32 blocks.
class RowRunner {
 public:
  RowRunner(MapOp op, DType dtype, int inputs, MapScalars scalars)
      : f32_(map_kernels().f32[static_cast<int>(op)]),
        f64_(map_kernels().f64[static_cast<int>(op)]),
        dtype_(dtype),
        inputs_(inputs),
        scalars_(scalars) {}

  void operator()(const Piece& piece, std::int64_t count) const {
    if (dtype_ == DType::f32) return run(f32_, piece, count);
    if (dtype_ == DType::f64) return run(f64_, piece, count);
    for (std::int64_t done = 0; done < count; done += kBlock) run_half(piece, done, std::min(kBlock, count - done));
  }

 private:
  template <class T>
  void run(MapRow<T> row, const Piece& piece, std::int64_t count) const {
    std::array<const T*, kMaxInputs> from{};
    for (int k = 0; k < inputs_; ++k) from[at(k)] = reinterpret_cast<const T*>(piece.inputs[at(k)]);
    row(reinterpret_cast<T*>(piece.out), from.data(), piece.constant.data(), count, scalars_);
  }

  void run_half(const Piece& piece, std::int64_t done, std::int64_t count) const {
    alignas(64) float wide[kMaxInputs][kBlock];
    alignas(64) float result[kBlock];
    Piece block = piece;
    for (int k = 0; k < inputs_; ++k) {
      const bool constant = piece.constant[at(k)];
      convert_elements(DType::f32, wide[k], dtype_, piece.inputs[at(k)] + (constant ? 0 : done * 2), constant ? 1 : count);
      block.inputs[at(k)] = reinterpret_cast<const char*>(wide[k]);
    }
    block.out = reinterpret_cast<char*>(result);
    run(f32_, block, count);
    convert_elements(dtype_, piece.out + done * 2, DType::f32, result, count);
  }

  MapRow<float> f32_;
  MapRow<double> f64_;
  DType dtype_;
  int inputs_;
  MapScalars scalars_;
};

// The tensors of one map() call and the loop over them.
struct Operands {
  Loop loop;
  char* out;
  std::array<const char*, kMaxInputs> inputs{};
  int count;
  std::int64_t size;  // bytes of an element

  Operands(const Tensor& result, std::span<const Tensor> tensors)
      : loop(make_loop(result, tensors)),
        out(static_cast<char*>(result.raw())),
        count(static_cast<int>(tensors.size())),
        size(static_cast<std::int64_t>(size_of(result.dtype()))) {
    for (int k = 0; k < count; ++k) inputs[at(k)] = static_cast<const char*>(tensors[at(k)].raw());
  }
};

bool inner_is_simple(const Loop& loop) {
  for (int k = 0; k < loop.operands; ++k)
    if (loop.inner_stride(k) != 1 && (k == 0 || loop.inner_stride(k) != 0)) return false;
  return true;
}

// Row by row, directly from and to the tensors: every operand is contiguous or constant along a row.
void map_rows(const Operands& t, const RowRunner& run, std::int64_t begin, std::int64_t end) {
  LoopPosition position(t.loop, begin);
  Piece piece;
  for (int k = 0; k < t.count; ++k) piece.constant[at(k)] = t.loop.inner_stride(k + 1) == 0;
  for (std::int64_t flat = begin; flat < end;) {
    const std::int64_t n = std::min(end - flat, position.left_in_row());
    piece.out = t.out + position.offset(0) * t.size;
    for (int k = 0; k < t.count; ++k) piece.inputs[at(k)] = t.inputs[at(k)] + position.offset(k + 1) * t.size;
    run(piece, n);
    position.advance(n);
    flat += n;
  }
}

// Block by block: operands that are not contiguous are gathered, and the result is scattered if necessary.
void map_blocks(const Operands& t, const RowRunner& run, std::int64_t begin, std::int64_t end) {
  alignas(64) char gathered[kMaxInputs][kBlock * 8];
  alignas(64) char result[kBlock * 8];
  const auto bytes = static_cast<std::size_t>(t.size);
  const bool flat_out = t.loop.is_flat(0);
  std::array<bool, kMaxInputs> flat_in{};
  Piece piece;
  for (int k = 0; k < t.count; ++k) {
    flat_in[at(k)] = t.loop.is_flat(k + 1);
    piece.constant[at(k)] = t.loop.is_constant(k + 1);
  }
  for (std::int64_t flat = begin; flat < end; flat += kBlock) {
    const std::int64_t n = std::min(kBlock, end - flat);
    for (int k = 0; k < t.count; ++k) {
      piece.inputs[at(k)] = t.inputs[at(k)] + (flat_in[at(k)] ? flat * t.size : 0);
      if (flat_in[at(k)] || piece.constant[at(k)]) continue;
      gather_elements(t.loop, k + 1, t.inputs[at(k)], flat, n, bytes, gathered[k]);
      piece.inputs[at(k)] = gathered[k];
    }
    piece.out = flat_out ? t.out + flat * t.size : result;
    run(piece, n);
    if (!flat_out) scatter_elements(t.loop, 0, t.out, flat, n, bytes, result);
  }
}

// Powers with an operation of their own, which is exact or much faster.
MapOp simplify(MapOp op, MapScalars scalars) {
  if (op != MapOp::pow_scalar) return op;
  if (scalars.p == 2) return MapOp::square;
  if (scalars.p == 0.5) return MapOp::sqrt;
  if (scalars.p == -0.5) return MapOp::rsqrt;
  if (scalars.p == -1) return MapOp::reciprocal;
  return op;
}

}  // namespace

void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) {
  if (out.dtype() == DType::i64) return map_i64(op, out, inputs, scalars);
  if (out.numel() == 0) return;
  const Operands operands(out, inputs);
  const RowRunner run(simplify(op, scalars), out.dtype(), operands.count, scalars);
  const bool rows = inner_is_simple(operands.loop) && (operands.loop.rank == 1 || operands.loop.inner_size() >= kShortRow);
  parallel_for(operands.loop.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    rows ? map_rows(operands, run, begin, end) : map_blocks(operands, run, begin, end);
  });
}

}  // namespace polyphase::cpu
