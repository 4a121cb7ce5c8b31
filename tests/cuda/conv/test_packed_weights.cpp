#include "cuda/conv/packed_weights.hpp"

#include <doctest/doctest.h>

#include <polyphase/polyphase.hpp>

#include "cuda/runtime/runtime.hpp"
#include "support/counted_packings.hpp"
#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;
using namespace polyphase::testing;

TEST_CASE("packed once, again after a write; each key and each beginning of its own") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(3);
  Uses uses;
  CHECK(uses.value(w) == 3);
  CHECK(uses.value(w) == 3);
  CHECK(uses.packs == 1);
  w.fill_(5);
  CHECK(uses.value(w) == 5);
  CHECK(uses.value(w) == 5);
  CHECK(uses.packs == 2);
  CHECK(uses.value(w, 1) == 5);
  CHECK(uses.value(w, 0, 4) == 5);
  CHECK(uses.packs == 4);
  CHECK(uses.value(w, 1) == 5);
  CHECK(uses.value(w, 0, 4) == 5);
  CHECK(uses.packs == 4);
}

TEST_CASE("nothing is kept of an address alone, nor where others may write") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(3);
  Uses uses;
  CHECK(uses.value(w, 0, 0, false) == 3);
  CHECK(uses.value(w, 0, 0, false) == 3);
  CHECK(uses.packs == 2);
  CHECK(uses.value(w) == 3);
  w.storage().mark_exported();
  CHECK(uses.value(w) == 3);
  CHECK(uses.value(w) == 3);
  CHECK(uses.packs == 5);
}

TEST_CASE("the forms of a storage are few, and go with it") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const std::size_t live = cuda::memory_stats(0).live_blocks;
  {
    const pp::Tensor w = weights_of(3);
    Uses uses;
    for (int key = 0; key < 20; ++key) CHECK(uses.value(w, key) == 3);
    CHECK(uses.packs == 20);
    CHECK(cuda::memory_stats(0).live_blocks == live + 1 + 8);
    for (int key = 12; key < 20; ++key) CHECK(uses.value(w, key) == 3);
    CHECK(uses.packs == 20);
    CHECK(uses.value(w, 0) == 3);
    CHECK(uses.packs == 21);
  }
  CHECK(cuda::memory_stats(0).live_blocks == live);
}

TEST_CASE("another stream sees a form that is being packed") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(0), out = weights_of(-1);
  Uses uses;
  const cuda::Stream first(0), second(0);
  for (int turn = 1; turn <= 50; ++turn) {
    w.fill_(turn);
    cuda::synchronize(0);
    {
      const cuda::StreamScope scope(first);
      uses.use(w, out.narrow(0, 0, 1));
    }
    {
      const cuda::StreamScope scope(second);
      uses.use(w, out.narrow(0, 1, 1));
    }
    CHECK(uses.packs == turn);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(out.select(0, 0).item() == turn);
    CHECK(out.select(0, 1).item() == turn);
  }
}

TEST_CASE("a graph uses the form that is there, and replays see what was written since") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(3), out = weights_of(-1);
  Uses uses;
  CHECK(uses.value(w) == 3);
  cuda::Graph graph = cuda::capture([&] { uses.use(w, out.narrow(0, 0, 1)); });
  CHECK(uses.packs == 1);
  const auto replayed = [&] {
    graph.replay();
    return out.select(0, 0).item();
  };
  CHECK(replayed() == 3);
  CHECK(uses.packs == 1);
  w.fill_(5);
  CHECK(replayed() == 5);
  CHECK(replayed() == 5);
  CHECK(uses.packs == 2);
  w.fill_(7);
  CHECK(uses.value(w) == 7);
  CHECK(replayed() == 7);
  CHECK(uses.packs == 3);
  for (int key = 1; key < 20; ++key) CHECK(uses.value(w, key) == 7);  // the storage drops its copy, the graph keeps it
  w.fill_(9);
  CHECK(replayed() == 9);
  pp::Tensor handed_out = pp::from_dlpack(pp::to_dlpack(w));
  handed_out.fill_(11);  // and the version of w is unchanged
  CHECK(replayed() == 11);
}

TEST_CASE("a graph packs by itself what it writes, and what was never packed") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(3), out = weights_of(-1);
  const pp::Tensor add = weights_of(1);
  Uses uses;
  CHECK(uses.value(w) == 3);
  cuda::Graph graph = cuda::capture([&] {
    w.copy_(w + add);
    uses.use(w, out.narrow(0, 0, 1));
    uses.use(w, out.narrow(0, 1, 1), 1);
  });
  CHECK(uses.packs == 3);
  for (int turn = 4; turn < 8; ++turn) {
    graph.replay();
    CHECK(out.select(0, 0).item() == turn);
    CHECK(out.select(0, 1).item() == turn);
  }
  CHECK(uses.packs == 3);
  CHECK(uses.value(w) == 7);  // values that replays wrote are visible outside too
  graph.replay();
  CHECK(uses.value(w) == 8);
}

TEST_CASE("a graph that uses the form and writes the weights after it, and uses between its capture and its replays") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = weights_of(3), out = weights_of(-1);
  const pp::Tensor add = weights_of(1);
  Uses uses;
  CHECK(uses.value(w) == 3);
  cuda::Graph graph = cuda::capture([&] {
    uses.use(w, out.narrow(0, 0, 1));
    w.copy_(w + add);
  });
  CHECK(uses.value(w) == 3);
  for (int turn = 3; turn < 8; ++turn) {
    graph.replay();
    CHECK(out.select(0, 0).item() == turn);
    if (turn % 2 == 0) CHECK(uses.value(w) == turn + 1);
  }
}

namespace {

/// `taps` weights of each channel contribute to an output in the middle.
struct Layer {
  std::int64_t in, out, kernel, stride, taps;
};

void check_writes(const Layer& layer, pp::DType dtype = pp::DType::f32) {
  CAPTURE(dtype);
  CAPTURE(layer.stride);
  CAPTURE(layer.out);
  const pp::TensorOptions on{.dtype = dtype, .device = pp::Device::cuda()};
  const pp::Tensor x = pp::Tensor::full({2, layer.in, 200}, 1, on);
  const pp::Tensor half = pp::Tensor::full({layer.in / 2, layer.out, layer.kernel}, 2, on);
  pp::Tensor w = pp::Tensor::full({layer.in, layer.out, layer.kernel}, 1, on);
  const auto convolved = [&] { return pp::conv_transpose1d(x, w, {}, {.stride = layer.stride}); };
  pp::Tensor y = pp::Tensor::zeros_like(convolved());
  const auto middle = [&](const pp::Tensor& result) {
    return result.select(0, 1).select(0, layer.out - 1).select(0, 100).item();
  };
  const auto sums = static_cast<double>(layer.in * layer.taps);
  CHECK(middle(convolved()) == sums);
  CHECK(middle(convolved()) == sums);
  w.fill_(3);
  CHECK(middle(convolved()) == 3 * sums);
  w.narrow(0, 0, layer.in / 2).copy_(half);
  CHECK(middle(convolved()) == 2.5 * sums);
  cuda::Graph graph = cuda::capture([&] { y.copy_(convolved()); });
  graph.replay();
  CHECK(middle(y) == 2.5 * sums);
  w.fill_(1);
  graph.replay();
  CHECK(middle(y) == sums);
}

}  // namespace

TEST_CASE("a convolution on tensor cores sees every write to its weights: in place, through a view, in a graph") {
  if (cuda::device_count() == 0 || cuda::properties(0).arch() != 90) SKIP_TEST("no GPU of compute capability 9.0");
  const pp::NoGradGuard no_grad;
  const pp::AlgorithmGuard guard(pp::Algorithm::tensor_core);
  check_writes({32, 64, 8, 4, 2});     // many columns
  check_writes({32, 16, 4, 2, 2});     // few columns, weights in registers
  check_writes({64, 40, 11, 1, 11});   // weights in shared memory
  check_writes({64, 128, 3, 1, 3});    // source in registers
  check_writes({512, 16, 15, 1, 15});  // neither fits
  const Layer converted{128, 20, 9, 3, 3}, long_taps{16, 16, 200, 1, 101};
  check_writes(converted);  // weights in shared memory, source converted before
  check_writes(long_taps);  // neither fits, and few channels
  // Sums of 16-bit operands. Every kernel keeps its packed weights.
  for (const pp::DType dtype : {pp::DType::f16, pp::DType::bf16})
    for (const Layer& layer : {Layer{32, 16, 8, 4, 2}, Layer{32, 16, 4, 2, 2}, Layer{64, 32, 4, 1, 4}, Layer{32, 16, 16, 8, 2},
                               Layer{64, 128, 3, 1, 3}, Layer{128, 64, 8, 4, 2}})
      check_writes(layer, dtype);
  const pp::PrecisionGuard one_product(pp::Precision::tf32);
  for (const Layer& layer : {Layer{32, 16, 8, 4, 2}, Layer{32, 16, 4, 2, 2}, Layer{64, 40, 11, 1, 11}, converted, long_taps})
    check_writes(layer);
}
