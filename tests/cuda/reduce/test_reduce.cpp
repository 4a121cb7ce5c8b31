#include "cuda/reduce/reduce.hpp"

#include <doctest/doctest.h>

#include "cuda/reduce/reduce_plan.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::sum_of_squares, ReduceOp::sum_of_abs, ReduceOp::max, ReduceOp::min};

Shape reduced_shape(const Shape& shape, unsigned dims) {
  Shape out = shape;
  for (int d = 0; d < shape.rank(); ++d)
    if ((dims >> static_cast<unsigned>(d) & 1U) != 0) out[d] = 1;
  return out;
}

double bound_of(DType dtype) {
  if (dtype == DType::f64) return kDoubleSum;
  if (dtype == DType::f32) return kFloatRounding;
  return dtype == DType::f16 ? kHalfRounding : dtype == DType::bf16 ? kBFloat16Rounding : 0;
}

double reduce_differs(ReduceOp op, const Tensor& in, unsigned dims) {
  const Shape shape = reduced_shape(in.shape(), dims);
  const Tensor expected = poisoned(shape, in.dtype()), got = mirrored(expected);
  host().reduce(op, expected, in);
  gpu().reduce(op, got, mirrored(in));
  return worst_difference(expected, got);
}

}  // namespace

TEST_CASE("every dtype, operation and set of dimensions agrees with the host's") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const ReduceOp op : kOps)
      for (const Shape& shape : {Shape{3, 5, 70}, Shape{2, 64, 33}, Shape{300, 7, 2}, Shape{2, 3, 9001}, Shape{40, 3, 513}})
        for (unsigned dims = 1; dims < 8; ++dims) {
          CAPTURE(dtype);
          CAPTURE(static_cast<int>(op));
          CAPTURE(shape);
          CAPTURE(dims);
          const Tensor in = random_f64(shape).to(dtype);
          CHECK(reduce_differs(op, in, dims) <= bound_of(dtype));
        }
}

TEST_CASE("lengths around the edges of packs, threads and pieces, misaligned, spread and transposed") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f16, DType::f64})
    for (const std::int64_t length : {1, 2, 7, 31, 32, 33, 255, 256, 1023, 1024, 1025, 8191, 8192, 8193, 32768, 32769, 100003})
      for (const std::int64_t start : {0, 1, 3}) {
        CAPTURE(dtype);
        CAPTURE(length);
        CAPTURE(start);
        const Tensor wide = random_f64({3, 2 * length + 4}).to(dtype);
        CHECK(reduce_differs(ReduceOp::sum, wide.slice(1, start, start + length), 2) <= bound_of(dtype));
        CHECK(reduce_differs(ReduceOp::sum, wide.slice(1, start, start + length), 3) <= bound_of(dtype));
        CHECK(reduce_differs(ReduceOp::sum, wide.slice(1, start, start + 2 * length, 2), 2) <= bound_of(dtype));
        CHECK(reduce_differs(ReduceOp::sum_of_squares, wide.slice(1, start, start + length).transpose(0, 1), 1) <=
              bound_of(dtype));
        CHECK(reduce_differs(ReduceOp::max, wide.slice(1, start, start + length).transpose(0, 1), 2) == 0);
      }
}

TEST_CASE("many outputs, many rows, expanded inputs, six dimensions") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const auto f32 = [](const Shape& shape) { return random_f64(shape).to(DType::f32); };
  CHECK(reduce_differs(ReduceOp::sum, f32({70000, 9}), 1) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({70000, 9}), 2) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({9, 70000}), 1) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({5000, 64}), 1) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({4, 33, 20001}), 5) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({5, 1}).expand({5, 4000}), 2) <= kFloatRounding);
  CHECK(reduce_differs(ReduceOp::sum, f32({1}).expand({5, 4000}), 3) <= kFloatRounding);
  for (const unsigned dims : {0b010101U, 0b101010U, 0b110011U, 0b111111U})
    CHECK(reduce_differs(ReduceOp::sum, f32({4, 3, 5, 2, 7, 6}).permute({3, 0, 5, 1, 4, 2}), dims) <= kFloatRounding);
}

TEST_CASE("sums of small integers are exact") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64, DType::i64})
    for (unsigned dims = 1; dims < 8; ++dims) CHECK(reduce_differs(ReduceOp::sum, counting({13, 17, 1001}, dtype), dims) == 0);
}

TEST_CASE("long sums in f64 lose nothing that a running sum would") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  constexpr std::int64_t kCount = std::int64_t{1} << 18;
  const Tensor x = uniform_f64({kCount}, 0, 1, 4);
  long double sum = 0;
  for (const double value : x.to_vector<double>()) sum += value;
  const Tensor out = Tensor::empty({1}, {.dtype = DType::f64, .device = Device::cuda()});
  gpu().reduce(ReduceOp::sum, out, mirrored(x));
  CHECK(std::abs(out.item() - static_cast<double>(sum)) <= kLongDoubleSum * static_cast<double>(sum));
}

TEST_CASE("NaN wins maxima and minima, infinities stay, nothing sums to 0") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const std::int64_t length : {5, 100, 20000}) {
    Tensor x = random_f64({2, length}).to(DType::f32);
    x.narrow(1, length / 2, 1).select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    x.narrow(1, length - 1, 1).select(0, 0).fill_(-std::numeric_limits<double>::infinity());
    for (const ReduceOp op : kOps) CHECK(reduce_differs(op, x, 2) <= kFloatRounding);
  }
  const Tensor empty = Tensor::empty({4, 0}, {.device = Device::cuda()});
  const Tensor out = Tensor::ones({4, 1}, {.device = Device::cuda()});
  gpu().reduce(ReduceOp::sum, out, empty);
  CHECK(out.to_vector<float>() == std::vector<float>(4, 0));
  CHECK(error_of<ShapeError>([&] {
          gpu().reduce(ReduceOp::max, out, empty);
          return 0;
        }) == "reduce: expected at least one element for max and min, got (4, 0)");
}

TEST_CASE("twenty runs, the same bits") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = mirrored(random_f64({7, 30, 5001}));
  for (unsigned dims = 1; dims < 8; ++dims) {
    std::vector<double> first;
    for (int run = 0; run < 20; ++run) {
      const Tensor out = Tensor::empty(reduced_shape(x.shape(), dims), {.dtype = DType::f64, .device = Device::cuda()});
      gpu().reduce(ReduceOp::sum, out, x);
      const std::vector<double> now = out.to_vector<double>();
      if (run == 0) first = now;
      CHECK(now == first);
    }
  }
}

TEST_CASE("sums of a function of two tensors agree with the host's, aligned and not, and give the same bits again") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const MapOp op : {MapOp::squared_difference, MapOp::smooth_l1})
      for (const std::int64_t size : {1, 3, 5, 511, 4096, 8191, 8192, 8193, 100003, 3000001})
        for (const std::int64_t start : {0, 1}) {
          CAPTURE(dtype);
          CAPTURE(size);
          CAPTURE(start);
          const Tensor a = random_f64({size + start}).to(dtype).slice(0, start, size + start);
          const Tensor b = uniform_f64({size}, -1, 1, 3).to(dtype), device_a = mirrored(a), device_b = mirrored(b);
          const Tensor expected = poisoned({}, dtype), got = mirrored(expected), again = mirrored(expected);
          const MapScalars scalars{0.7, 1 / static_cast<double>(size)};
          host().reduce_map(op, expected, a, b, scalars);
          gpu().reduce_map(op, got, device_a, device_b, scalars);
          gpu().reduce_map(op, again, device_a, device_b, scalars);
          CHECK(worst_difference(expected, got) <= bound_of(dtype));
          CHECK(got.item() == again.item());
        }
}

TEST_CASE("pairs of 16 bits: sums in f32, gradients of f32 rounded once, aligned or not") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const auto& [op, slope] : {std::pair(MapOp::squared_difference, MapOp::squared_difference_grad),
                                  std::pair(MapOp::smooth_l1, MapOp::smooth_l1_grad)})
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const std::int64_t size : {1, 7, 4096, 8193, 100003})
        for (const bool shifted : {false, true}) {
          CAPTURE(size);
          const auto placed = [&](std::uint64_t seed) {
            const Tensor whole = mirrored(uniform_f64({size + 1}, -1, 1, seed).to(dtype));
            return whole.narrow(0, shifted ? 1 : 0, size);
          };
          const Tensor a = placed(1), b = placed(2), wide_a = a.to(DType::f32), wide_b = b.to(DType::f32);
          const MapScalars scalars{0.25, 1 / static_cast<double>(size)};
          const Tensor got = mirrored(poisoned({}, DType::f32)), expected = mirrored(poisoned({}, DType::f32));
          gpu().reduce_map(op, got, a, b, scalars);
          gpu().reduce_map(op, expected, wide_a, wide_b, scalars);
          CHECK(worst_difference(expected.cpu(), got) <= bound_of(DType::f32));
          const Tensor g = mirrored(Tensor::full({}, 0.7, {.dtype = DType::f32}));
          const Tensor out = mirrored(poisoned({size}, dtype)), wide = mirrored(poisoned({size}, DType::f32));
          const Tensor everywhere = g.expand({size});
          gpu().pair_gradient(slope, out, a, b, g, scalars);
          gpu().map(slope, wide, std::array{wide_a, wide_b, everywhere}, scalars);
          CHECK(max_difference(out.cpu(), wide.cpu().to(dtype)) == 0);
        }
}

TEST_CASE("pairs: one block for few elements, never more than the second launch adds") {
  CHECK(cuda::pair_blocks(1) == 1);
  CHECK(cuda::pair_blocks(cuda::kShortPair) == 1);
  CHECK(cuda::pair_blocks(cuda::kShortPair + 1) == 5);
  CHECK(cuda::pair_blocks(32 * 8192) == 128);
  CHECK(cuda::pair_blocks(std::int64_t{1} << 40) == cuda::kPairBlocks);
}

TEST_CASE("short rows of one piece are read together") {
  CHECK(cuda::cut_rows(32, 512).row_lanes == 32);  // the bias of a training batch
  CHECK(cuda::cut_rows(32, 2048).row_lanes == 128);
  CHECK(cuda::cut_rows(32, 8192).row_lanes == 256);
}

TEST_CASE("pieces cover every row once") {
  for (const std::int64_t rows : {1, 2, 5, 1000, 100000})
    for (const std::int64_t inner : {1, 3, 8192, 8193, 100000}) {
      const cuda::RowPieces cut = cuda::cut_rows(rows, inner);
      CHECK(cut.cuts * cut.cut >= inner);
      CHECK((cut.cuts - 1) * cut.cut < inner);
      CHECK(cut.pieces == cut.cuts * ((rows + cut.group - 1) / cut.group));
      CHECK((cut.lanes == 256 || cut.pieces == 1));
      CHECK(cut.lanes % cut.row_lanes == 0);
      CHECK(cut.row_lanes % 32 == 0);
      CHECK(cut.lanes / cut.row_lanes <= std::max<std::int64_t>(1, 2 * cut.group));
    }
}
