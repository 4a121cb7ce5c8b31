#include "networks/network.hpp"

#include <algorithm>
#include <optional>

#include "autograd/no_grad.hpp"
#include "layers/streaming/module_stream.hpp"
#include "layers/weight_norm.hpp"

namespace polyphase {
namespace {

bool is_half_of_weight_norm(std::string_view key) {
  return key.ends_with(".weight_g") || key.ends_with(".weight_v") || key.find(".parametrizations.weight.original") != key.npos;
}

}  // namespace

void Network::visit(Visitor& visitor) { visitor.module("", body_); }

void Network::check_input(const Tensor& input) const {
  const std::int64_t rows = format_.rows, least = format_.least_rows == 0 ? rows : format_.least_rows;
  const std::string expected = least == rows ? std::to_string(rows) : concat(least, " to ", rows);
  require<ShapeError>(input.rank() == 3 && input.size(1) >= least && input.size(1) <= rows && input.size(2) >= 1,
                      "network: expected an input (N, ", expected, ", frames >= 1), got ", input.shape());
  require<ShapeError>(input.size(2) % format_.frame_multiple == 0, "network: expected a multiple of ", format_.frame_multiple,
                      " frames, got ", input.size(2));
  require<DTypeError>((input.dtype() == DType::i64) == (format_.input == NetworkInput::codes), "network: expected ",
                      format_.input == NetworkInput::codes ? "codes, i64" : "floating-point numbers", ", got ", input.dtype());
}

Tensor Network::forward(const Tensor& input) {
  check_input(input);
  std::optional<HeldWeights> held;
  if (grad_enabled()) held.emplace(body_);
  return body_(input);
}

std::unique_ptr<ModuleStream> Network::make_stream() { return body_.make_stream(); }

void Network::set_scales(const Tensor& scales) {
  require<NotImplemented>(!scales.defined(), "network: expected no scales, because there are no segments, got ",
                          scales.defined() ? scales.shape() : Shape{});
}

bool Network::is_unused(std::string_view) const { return false; }

std::string Network::own_name(std::string_view key) const { return std::string(key); }

void Network::load_published(const NamedTensors& state) {
  NamedTensors own;
  for (const auto& [name, tensor] : state) {
    if (is_unused(name)) continue;
    own.emplace_back(own_name(name), is_half_of_weight_norm(name) && tensor.defined() ? tensor.to(DType::f64) : tensor);
  }
  load_state_dict(own);
}

}  // namespace polyphase
