#include "networks/blocks/split_rvq.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "autograd/no_grad.hpp"
#include "support/codes.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr std::int64_t kSize = 5, kChannels = 3, kOut = 4;

/// Four codebooks in f64, the first one separate, with an entry that was never used.
SplitRvq codebooks() {
  manual_seed(3);
  SplitRvq rvq({.codebooks = 4, .size = kSize, .channels = kChannels, .output_channels = kOut});
  rvq.to(DType::f64);
  for (auto& [name, tensor] : rvq.state_dict())
    if (name.ends_with("cluster_usage")) tensor.copy_(Tensor::from_vector<double>({0, 2, 0.5, 7, 1}));
  return rvq;
}

std::vector<double> of(SplitRvq& rvq, const std::string& name) {
  const NamedTensors state = rvq.state_dict();
  return std::find_if(state.begin(), state.end(), [&](const auto& entry) { return entry.first == name; })
      ->second.to_vector<double>();
}

/// Output channel c of one frame of codes.
double plain(SplitRvq& rvq, const std::vector<std::int64_t>& codes, std::int64_t c) {
  double total = 0;
  for (std::size_t q = 0; q < codes.size(); ++q) {
    const std::string part = q == 0 ? "rvq_first" : "rvq_rest";
    const std::string book = concat(part, ".vq.layers.", q == 0 ? 0 : q - 1, "._codebook.");
    const std::vector<double> usage = of(rvq, book + "cluster_usage"), sum = of(rvq, book + "embedding_sum"),
                              projection = of(rvq, part + ".output_proj.weight");
    for (std::int64_t d = 0; d < kChannels; ++d)
      total += projection[static_cast<std::size_t>(c * kChannels + d)] *
               sum[static_cast<std::size_t>(codes[q] * kChannels + d)] /
               std::max(usage[static_cast<std::size_t>(codes[q])], 1e-5);
  }
  return total;
}

}  // namespace

TEST_CASE("entries are sums by usage, and an entry that was never used is divided by 1e-5") {
  SplitRvq rvq = codebooks();
  const NoGradGuard no_grad;
  const std::vector<std::int64_t> frame{0, 4, 2, 3};
  const Tensor codes = Tensor::from_vector(frame, {1, 4, 1});
  for (const std::int64_t rows : {1, 2, 4}) {
    CAPTURE(rows);
    const std::vector<double> y = rvq(codes.narrow(1, 0, rows)).to_vector<double>();
    REQUIRE(y.size() == kOut);
    for (std::int64_t c = 0; c < kOut; ++c)
      CHECK(y[static_cast<std::size_t>(c)] ==
            doctest::Approx(plain(rvq, {frame.begin(), frame.begin() + rows}, c)).epsilon(kDoubleRounding));
  }
}

TEST_CASE("the projections are learned, the codebooks are not") {
  SplitRvq rvq = codebooks();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : rvq.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"rvq_first.output_proj.weight", "rvq_rest.output_proj.weight"});
}

TEST_CASE("16-bit codebooks are divided in f32") {
  SplitRvq rvq = codebooks();
  const NoGradGuard no_grad;
  const Tensor codes = Tensor::from_vector<std::int64_t>({1, 2, 3, 4}, {1, 4, 1});
  const Tensor wide = rvq(codes);
  rvq.to(DType::f16);
  CHECK(relative_difference(f64_values(rvq(codes)), f64_values(wide)) < 4 * kHalfUnit);
}

TEST_CASE("codes that do not fit are refused in words") {
  SplitRvq rvq = codebooks();
  const auto error = [&](const Shape& shape) {
    return error_of<ShapeError>([&] { return rvq(Tensor::zeros(shape, {.dtype = DType::i64})); });
  };
  CHECK(error({1, 5, 2}) == "codebooks: expected codes (N, 1 to 4, L), got (1, 5, 2)");
  CHECK(error({1, 0, 2}).find("(1, 0, 2)") != std::string::npos);
  CHECK(error({4, 2}).find("(4, 2)") != std::string::npos);
  CHECK(error_of<DTypeError>([&] { return rvq(Tensor::ones({1, 4, 2})); }) == "codebooks: expected codes of i64, got f32");
  if (default_device().is_cuda()) return;  // a GPU reports it later
  for (const std::int64_t wrong : {std::int64_t{-1}, kSize}) {
    const Tensor codes = Tensor::from_vector(std::vector<std::int64_t>{0, 0, wrong, 0}, {1, 4, 1});
    CHECK(error_of<ShapeError>([&] { return rvq(codes); }).find(std::to_string(wrong)) != std::string::npos);
  }
}

TEST_CASE("codebooks in pieces") {
  SplitRvq rvq = codebooks();
  check_stream_of(rvq, some_codes({2, 4, 70}, kSize));
  rvq.to(DType::f32);
  check_stream_of(rvq, some_codes({2, 3, 70}, kSize));
}
