#include "model.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "shared.hpp"
#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/memory.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::kFloatSum;

namespace {

ModelOptions small(int factor, bool causal) {
  return {.factor = factor, .causal = causal, .channels = 6, .high_channels = 4, .blocks = 2, .kernel = 3};
}

// The last convolution is small at first and has a bias of 0; tests of dependences need ordinary numbers.
UpsamplingNetwork make(const ModelOptions& options) {
  pp::Generator generator(3);
  const pp::GeneratorGuard guard(generator);
  return UpsamplingNetwork(options);
}

pp::Tensor signal(std::int64_t length, std::uint64_t seed = 1) {
  return pp::Tensor::from_vector(noise(length, seed), {1, 1, length});
}

// The first and the last output that change with input `place`.
std::pair<std::int64_t, std::int64_t> touched(UpsamplingNetwork& network, std::int64_t length, std::int64_t place) {
  const pp::NoGradGuard no_grad;
  const pp::Tensor x = signal(length);
  pp::Tensor changed = x.clone();
  changed.narrow(2, place, 1).fill_(3.0);
  const std::vector<float> a = network(x).to_vector<float>();
  const std::vector<float> b = network(changed).to_vector<float>();
  std::int64_t first = -1;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (first < 0) first = static_cast<std::int64_t>(i);
    last = static_cast<std::int64_t>(i);
  }
  return {first, last};
}

}  // namespace

TEST_CASE("every factor gives factor times the length, for any length and batch") {
  for (const int factor : {2, 4, 8}) {
    for (const bool causal : {false, true}) {
      UpsamplingNetwork network = make(small(factor, causal));
      for (const std::int64_t length : {1, 7, 100}) {
        CHECK(network(pp::Tensor::zeros({3, 1, length})).shape() == pp::Shape({3, 1, length * factor}));
      }
    }
  }
}

TEST_CASE("a fresh network is close to windowed-sinc interpolation") {
  for (const int factor : {2, 4, 8}) {
    UpsamplingNetwork network = make(small(factor, false));
    // If the last convolution is zero, the output is exactly the interpolation.
    for (auto& [name, tensor] : network.named_parameters()) {
      if (name.starts_with("last.")) {
        const pp::NoGradGuard no_grad;
        tensor.zero_();
      }
    }
    const std::vector<float> low = noise(200);
    const std::vector<float> sinc = interpolate_sinc(low, factor);
    const std::vector<float> output = network(pp::Tensor::from_vector(low, {1, 1, 200})).to_vector<float>();
    REQUIRE(output.size() == sinc.size());
    for (std::size_t i = 0; i < sinc.size(); ++i) CHECK(output[i] == doctest::Approx(sinc[i]).epsilon(kFloatSum));
  }
}

TEST_CASE("a causal network looks at nothing that comes later") {
  for (const int factor : {2, 4, 8}) {
    UpsamplingNetwork network = make(small(factor, true));
    const auto [first, last] = touched(network, 200, 100);
    CHECK(first == 100 * factor);
    CHECK(last <= (100 + network.context().left) * factor + factor - 1);
    CHECK(network.context().right == 0);
  }
}

TEST_CASE("the context is how far the network looks") {
  for (const int factor : {2, 4, 8}) {
    for (const int blocks : {0, 3, 4}) {
      ModelOptions options = small(factor, false);
      options.blocks = blocks;
      UpsamplingNetwork network = make(options);
      const Context context = network.context();
      const std::int64_t place = 300;
      const auto [first, last] = touched(network, 600, place);
      // Output t depends on inputs t/factor - left .. t/factor + right, so input `place` affects these outputs only.
      CHECK(first >= (place - context.right) * factor);
      CHECK(last < (place + context.left + 1) * factor);
      // The context is not much wider than necessary.
      CHECK(first < (place - context.right + 4) * factor);
      CHECK(last >= (place + context.left - 4) * factor);
    }
  }
}

TEST_CASE("the interpolation is fixed, unless it is causal") {
  UpsamplingNetwork both = make(small(4, false));
  CHECK_FALSE(both.named_parameters()[0].second.requires_grad());
  CHECK(both.named_parameters()[0].first == "base.weight");
  UpsamplingNetwork causal = make(small(4, true));
  CHECK(causal.named_parameters()[0].second.requires_grad());
}

TEST_CASE("options go through a checkpoint's texts, and bad ones are refused in words") {
  const ModelOptions options{
      .factor = 8, .rate = 48000, .causal = true, .channels = 12, .high_channels = 5, .blocks = 2, .kernel = 7};
  const ModelOptions back = from_texts(to_texts(options));
  CHECK(to_texts(back) == to_texts(options));
  CHECK(back.causal);

  auto texts = to_texts(options);
  texts["kernel"] = "7x";
  CHECK(error_of<Error>([&] { return from_texts(texts).rate; }) == "model: expected a whole number for 'kernel', got '7x'");
  texts.erase("kernel");
  CHECK(error_of<Error>([&] { return from_texts(texts).rate; }) ==
        "model: the checkpoint does not say 'kernel': not one of this program's");

  const auto refused = [](ModelOptions bad) {
    return error_of<Error>([&] { return UpsamplingNetwork(bad).parameter_count(); });
  };
  CHECK(refused({.factor = 3}) == "model: expected a factor of 2, 4 or 8, got 3");
  CHECK(refused({.factor = 8, .rate = 44100}) == "model: expected a rate that 8 divides, got 44100 Hz");
  CHECK(refused({.channels = 0}) == "model: expected channels in 1..4096, got 0");
  CHECK(refused({.kernel = 4}) == "model: expected an odd kernel, got 4");
}

TEST_CASE("the shapes of a state are known without a network") {
  for (const int factor : {2, 4, 8}) {
    for (const bool causal : {false, true}) {
      for (const int high_channels : {2, 9}) {
        for (const int blocks : {0, 2}) {
          const ModelOptions options{.factor = factor,
                                     .causal = causal,
                                     .channels = 11,
                                     .high_channels = high_channels,
                                     .blocks = blocks,
                                     .kernel = 5};
          std::vector<std::pair<std::string, pp::Shape>> shapes;
          UpsamplingNetwork network(options);
          for (const auto& [name, tensor] : network.state_dict()) shapes.emplace_back(name, tensor.shape());
          CHECK(state_shapes(options) == shapes);
        }
      }
    }
  }
}

TEST_CASE("a checkpoint whose tensors are not those that its texts speak of is refused before memory is taken") {
  const ModelOptions options = small(4, false);
  pp::Checkpoint checkpoint{.model = make(options).state_dict(), .texts = to_texts(options)};
  CHECK(to_texts(options_of(checkpoint)) == checkpoint.texts);
  ModelOptions hostile = options;
  hostile.channels = 1024;  // 25 MB of weights
  checkpoint.texts = to_texts(hostile);
  pp::reset_peak_memory(pp::Device::cpu());
  const std::size_t before = pp::memory_stats(pp::Device::cpu()).peak_bytes;
  CHECK(error_of<Error>([&] { return options_of(checkpoint).rate; }) ==
        "model: expected a tensor 'first.weight' of shape (1024, 1, 7), as the checkpoint's texts say, got (6, 1, 7)");
  CHECK(pp::memory_stats(pp::Device::cpu()).peak_bytes == before);
  checkpoint.texts = to_texts(options);
  std::erase_if(checkpoint.model, [](const auto& entry) { return entry.first == "last.bias"; });
  CHECK(error_of<Error>([&] { return options_of(checkpoint).rate; }) ==
        "model: expected a tensor 'last.bias' of shape (1,), as the checkpoint's texts say, got none");
}
