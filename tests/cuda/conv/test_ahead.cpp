#include "cuda/conv/ahead.hpp"

#include <doctest/doctest.h>

#include <array>

#include "support/counted_packings.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

void announce(const Tensor& w) { cuda::pack_ahead(std::array{w.storage()}, 0, cuda::current_stream(0)); }

}  // namespace

TEST_CASE("a graph packs announced weights once for all uses, and each replay packs what it made of them") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  Tensor w = weights_of(3), out = weights_of(-1);
  const Tensor add = weights_of(1);
  Uses uses;
  cuda::Graph graph = cuda::capture([&] {
    const Tensor made = w + add, other = w * add;
    announce(made);
    announce(other);
    for (const int use : {0, 1}) uses.use(made, out.narrow(0, use, 1));
    uses.use(made, out.narrow(0, 2, 1), /*key=*/1);
    uses.use(other, out.narrow(0, 3, 1));
  });
  CHECK(uses.packs == 3);
  for (const int value : {3, 5, 7}) {
    w.fill_(value);
    graph.replay();
    for (const int use : {0, 1, 2}) CHECK(out.select(0, use).item() == value + 1);
    CHECK(out.select(0, 3).item() == value);
  }
}

TEST_CASE("weights that were written since, or were not announced, are packed where they are used") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  Tensor w = weights_of(3), out = weights_of(-1);
  Uses uses;
  cuda::Graph graph = cuda::capture([&] {
    Tensor made = w * 2.0;
    const Tensor other = w * 3.0;
    announce(made);
    made.fill_(4);
    for (const int use : {0, 1}) uses.use(made, out.narrow(0, use, 1));
    for (const int use : {2, 3}) uses.use(other, out.narrow(0, use, 1));
  });
  CHECK(uses.packs == 4);
  graph.replay();
  for (const int use : {0, 1}) CHECK(out.select(0, use).item() == 4);
  for (const int use : {2, 3}) CHECK(out.select(0, use).item() == 9);
}

TEST_CASE("weights at the address of earlier ones, and weights that are announced again, have a packing of their own") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  Tensor memory = weights_of(-1), out = weights_of(-1);
  int packs = 0;
  cuda::Graph graph = cuda::capture([&] {
    auto use = [&, to = 0](const Storage& weights, float value) mutable {
      memory.fill_(value);
      weights.bump_version();
      const cudaStream_t stream = cuda::current_stream(0);
      cuda::pack_ahead(std::array{weights}, 0, stream);
      const auto packing = cuda::packed_ahead(weights, weights.data(), {0}, kPackedBytes, 0, stream, Packing{&packs});
      REQUIRE(packing != nullptr);
      CHECK_CUDA(
          cudaMemcpyAsync(out.narrow(0, to++, 1).raw(), packing->as<float>(), sizeof(float), cudaMemcpyDeviceToDevice, stream));
    };
    const auto storage = [&] { return Storage(memory.raw(), memory.storage().bytes(), Device::cuda(), {}); };
    use(storage(), 3);
    use(storage(), 5);
    const Storage again = storage();
    use(again, 7);
    use(again, 9);
  });
  CHECK(packs == 4);
  graph.replay();
  for (const int use : {0, 1, 2, 3}) CHECK(out.select(0, use).item() == 3 + 2 * use);
}

TEST_CASE("weights may be announced for nothing, outside of a capture too") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  Tensor w = weights_of(3), out = weights_of(-1);
  Uses uses;
  announce(w);
  CHECK(cuda::packed_ahead(w.storage(), w.raw(), {0}, kPackedBytes, 0, cuda::current_stream(0), Packing{&uses.packs}) ==
        nullptr);
  cuda::Graph graph = cuda::capture([&] {
    announce(w);
    out.fill_(5);
  });
  graph.replay();
  CHECK(out.select(0, 0).item() == 5);
  CHECK(uses.packs == 0);
}
