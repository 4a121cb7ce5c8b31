#include "ops/lstm.hpp"

#include <array>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/mac_counter.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::Gradients;
using autograd::Needs;
using autograd::Saved;

namespace {

void require_shape(const char* role, const Tensor& tensor, const Shape& shape) {
  require<ShapeError>(!tensor.defined() || tensor.shape() == shape, "lstm: expected ", role, " ", shape, ", got ",
                      tensor.defined() ? tensor.shape() : Shape{});
}

// `below`: H of the layer before; -1 for the first layer, whose input is x.
void check(const Tensor& x, std::int64_t below, const LstmWeights& weights, const LstmState& state) {
  ops::require_defined("lstm", "weight_ih", weights.input);
  ops::require_defined("lstm", "weight_hh", weights.hidden);
  ops::require_floating("lstm", x);
  ops::require_alike("lstm", std::array{x, weights.input, weights.hidden, weights.input_bias, weights.hidden_bias});
  ops::require_alike("lstm", std::array{ops::is_half(x) ? Tensor() : x, state.hidden, state.cell});
  require<ShapeError>(x.rank() == 3, "lstm: expected x (N, L, C), got ", x.shape());
  require<ShapeError>(weights.hidden.rank() == 2 && weights.hidden.size(1) >= 1, "lstm: expected weight_hh (4H, H), got ",
                      weights.hidden.shape());
  const std::int64_t H = weights.hidden.size(1);
  require_shape("weight_hh", weights.hidden, {4 * H, H});
  require_shape("weight_ih", weights.input, {4 * H, below < 0 ? x.size(2) : below});
  require_shape("bias_ih", weights.input_bias, {4 * H});
  require_shape("bias_hh", weights.hidden_bias, {4 * H});
  require_shape("the hidden state", state.hidden, {x.size(0), H});
  require_shape("the cell state", state.cell, {x.size(0), H});
}

// What a pass over all steps of a layer keeps for the backward pass.
struct Kept {
  Tensor gates, hidden, cells;         // as in LstmSteps
  Saved weight, input_weight{}, h, c;  // h and c: undefined for zeros
  [[nodiscard]] Tensor first(const Saved& state) const {
    return state.defined() ? state.get() : Tensor::zeros_like(hidden.select(0, 0));
  }
};

// The gradients of a layer's gates before their activations, and of its first h and c.
struct LayerGradients {
  Tensor gates, h, c;
};

// From `hidden` (T, N, H), the gradients of h after each step, and `cell` (N, H), that of the last c:
//   dc += dh o (1 - tanh(c)^2), then each gate's part through its activation, dc *= f, dh = dgates weight.
LayerGradients way_back(const Kept& kept, const Tensor& hidden, const Tensor& cell) {
  const std::int64_t T = kept.gates.size(0), H = kept.hidden.size(2);
  const Tensor weight = kept.weight.get();
  const Tensor first_c = kept.first(kept.c);
  Tensor dgates = Tensor::empty_like(kept.gates), dh = Tensor::zeros_like(first_c), dc = cell;
  for (std::int64_t t = T - 1; t >= 0; --t) {
    const auto gate = [&, t](const Tensor& of, int which) { return of.select(0, t).narrow(1, which * H, H); };
    const auto through = [](MapOp op, const Tensor& y, const Tensor& gradient) { return ops::map("lstm", op, {y, gradient}); };
    const Tensor i = gate(kept.gates, 0), f = gate(kept.gates, 1), candidate = gate(kept.gates, 2), o = gate(kept.gates, 3);
    const Tensor output = ops::map("lstm", MapOp::tanh, {kept.cells.select(0, t)});
    dh = add(dh, hidden.select(0, t));
    dc = add(dc, through(MapOp::tanh_grad, output, mul(dh, o)));
    gate(dgates, 0).copy_(through(MapOp::sigmoid_grad, i, mul(dc, candidate)));
    gate(dgates, 1).copy_(through(MapOp::sigmoid_grad, f, mul(dc, t > 0 ? kept.cells.select(0, t - 1) : first_c)));
    gate(dgates, 2).copy_(through(MapOp::tanh_grad, candidate, mul(dc, i)));
    gate(dgates, 3).copy_(through(MapOp::sigmoid_grad, o, mul(dh, output)));
    dc = mul(dc, f);
    dh = matmul(dgates.select(0, t), weight);
  }
  return {dgates, dh, dc};
}

// (T, N, width) -> (T*N, width)
Tensor rows(const Tensor& steps) { return steps.reshape({steps.size(0) * steps.size(1), steps.size(2)}); }

// The gradient of weight_hh: dgates^T times h before each step.
Tensor weight_gradient(const Kept& kept, const Tensor& dgates) {
  const std::int64_t T = kept.gates.size(0);
  const Tensor before = Tensor::empty_like(kept.hidden);
  before.select(0, 0).copy_(kept.first(kept.h));
  if (T > 1) before.narrow(0, 1, T - 1).copy_(kept.hidden.narrow(0, 0, T - 1));
  return matmul(rows(dgates).transpose(0, 1), rows(before));
}

// A layer's inputs on the tape, in this order.
enum Input : std::size_t { kInput, kHidden, kInputBias, kHiddenBias, kH, kC, kInputs };

// Gradients of the inputs of all layers, the last layer first, from that of the result of recurrence().
Gradients gradients_of(const std::vector<Kept>& layers, const Tensor& g, Needs needs) {
  Gradients gradients(layers.size() * kInputs);
  Tensor from_above;  // the gradient of h after each step, from the layer above
  for (std::size_t k = layers.size(); k-- > 0;) {
    const Kept& kept = layers[k];
    const std::int64_t T = kept.gates.size(0);
    const Tensor part = g.select(0, static_cast<std::int64_t>(k));
    const Tensor hidden = part.narrow(0, 0, T);
    const LayerGradients back = way_back(kept, from_above.defined() ? add(hidden, from_above) : hidden, part.select(0, T));
    const auto needed = [&](Input input) { return needs[static_cast<int>(k * kInputs + input)]; };
    const auto give = [&](Input input, const Tensor& gradient) { gradients[k * kInputs + input] = gradient; };
    if (needed(kHidden)) give(kHidden, weight_gradient(kept, back.gates));
    if (needed(kInputBias) || needed(kHiddenBias)) {
      const Tensor bias = sum(back.gates, {0, 1});
      if (needed(kInputBias)) give(kInputBias, bias);
      if (needed(kHiddenBias)) give(kHiddenBias, bias);
    }
    if (needed(kH)) give(kH, back.h);
    if (needed(kC)) give(kC, back.c);
    if (k == 0) {
      if (needed(kInput)) give(kInput, back.gates);
      break;
    }
    if (needed(kInput)) give(kInput, matmul(rows(back.gates).transpose(0, 1), rows(layers[k - 1].hidden)));
    from_above = matmul(rows(back.gates), kept.input_weight.get()).reshape(layers[k - 1].hidden.shape());
  }
  return gradients;
}

// Layers that recurrence() computes together; a node has at most 64 inputs.
constexpr std::size_t kTogether = 2;

LstmSteps steps_of(std::span<const Tensor> inputs, const Tensor& gates, bool is_first) {
  const auto at = [&](Input input) { return inputs[input].defined() ? inputs[input].detach().contiguous() : Tensor(); };
  const std::int64_t T = gates.size(0), N = gates.size(1), H = inputs[kHidden].size(1);
  const TensorOptions alike{gates.dtype(), gates.device()};
  ops::MacCounter::add(static_cast<double>(T * N * 4 * H) * static_cast<double>(H + (is_first ? 0 : inputs[kInput].size(1))));
  return {.gates = is_first ? at(kInput) : Tensor::empty({T, N, 4 * H}, alike),
          .weight = at(kHidden),
          .input_weight = is_first ? Tensor() : at(kInput),
          .input_bias = at(kInputBias),
          .hidden_bias = at(kHiddenBias),
          .h = at(kH),
          .c = at(kC),
          .hidden = Tensor::empty({T, N, H}, alike),
          .cells = Tensor::empty({T, N, H}, alike)};
}

// The results of some layers of one H.
struct Results {
  Tensor y;  // (T, N, H), of the last layer
  std::vector<LstmState> states;
};

// `inputs`: those of every layer, of the first one gates (T, N, 4H) and of the others weight_ih as kInput. Overwrites gates.
Results recurrence(const std::vector<Tensor>& inputs) {
  const Tensor& gates = inputs[kInput];
  const std::int64_t T = gates.size(0), N = gates.size(1), H = inputs[kHidden].size(1);
  const auto layers = static_cast<std::int64_t>(inputs.size() / kInputs);
  std::vector<LstmSteps> steps;
  std::vector<Kept> kept;
  Results results;
  Tensor all;  // (layers, T + 1, N, H): h after each step, followed by the last c
  {
    const NoGradGuard no_grad;
    for (std::size_t k = 0; k < inputs.size(); k += kInputs)
      steps.push_back(steps_of(std::span(inputs).subspan(k, kInputs), gates, k == 0));
    backend_of(gates.device()).lstm(steps);
  }
  if (!autograd::should_record(inputs)) {
    for (const LstmSteps& layer : steps)
      results.states.push_back({layer.hidden.select(0, T - 1), layer.cells.select(0, T - 1)});
    results.y = steps.back().hidden;
    return results;
  }
  {
    const NoGradGuard no_grad;
    all = Tensor::empty({layers, T + 1, N, H}, {gates.dtype(), gates.device()});
    for (std::int64_t k = 0; k < layers; ++k) {
      const LstmSteps& layer = steps[static_cast<std::size_t>(k)];
      const auto input = [&](Input which) { return inputs[static_cast<std::size_t>(k) * kInputs + which]; };
      const auto saved = [](const Tensor& tensor) { return tensor.defined() ? Saved(tensor) : Saved(); };
      all.select(0, k).narrow(0, 0, T).copy_(layer.hidden);
      all.select(0, k).select(0, T).copy_(layer.cells.select(0, T - 1));
      kept.push_back({layer.gates, layer.hidden, layer.cells, Saved(input(kHidden)), k > 0 ? Saved(input(kInput)) : Saved(),
                      saved(input(kH)), saved(input(kC))});
    }
  }
  all = autograd::record("lstm", all, inputs, [kept](const Tensor& g, Needs needs) { return gradients_of(kept, g, needs); });
  for (std::int64_t k = 0; k < layers; ++k)
    results.states.push_back({all.select(0, k).select(0, T - 1), all.select(0, k).select(0, T)});
  results.y = all.select(0, layers - 1).narrow(0, 0, T);
  return results;
}

LstmWeights to_f32(const LstmWeights& weights) {
  const auto wide = [](const Tensor& tensor) { return tensor.defined() ? tensor.to(DType::f32) : tensor; };
  return {wide(weights.input), wide(weights.hidden), wide(weights.input_bias), wide(weights.hidden_bias)};
}

std::vector<LstmWeights> to_f32(std::span<const LstmWeights> layers) {
  std::vector<LstmWeights> wide;
  for (const LstmWeights& weights : layers) wide.push_back(to_f32(weights));
  return wide;
}

bool records(const Tensor& x, std::span<const LstmWeights> layers) {
  std::vector<Tensor> all{x};
  for (const LstmWeights& layer : layers)
    all.insert(all.end(), {layer.input, layer.hidden, layer.input_bias, layer.hidden_bias});
  return autograd::should_record(all);
}

// What all dtypes share: x of f32 or f64; the weights may be of 16 bits if nothing is recorded.
LstmStackResult forward(const Tensor& x, std::span<const LstmWeights> layers, std::span<const LstmState> states) {
  const AutocastGuard off(std::nullopt);
  const std::int64_t N = x.size(0), L = x.size(1);
  const auto state_of = [&](std::size_t k) { return states.empty() ? LstmState{} : states[k]; };
  LstmStackResult result{x, {}};
  if (N == 0 || L == 0) {
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const std::int64_t H = layers[k].hidden.size(1);
      const auto given = [&](const Tensor& part) {
        return part.defined() ? part : Tensor::zeros({N, H}, {x.dtype(), x.device()});
      };
      const LstmState state = state_of(k);
      result.states.push_back({given(state.hidden), given(state.cell)});
      result.y = Tensor::zeros({N, L, H}, {x.dtype(), x.device()});
    }
    return result;
  }
  for (std::size_t k = 0; k < layers.size();) {
    std::vector<Tensor> inputs;
    const std::size_t first = k;
    for (; k < layers.size() && k < first + kTogether && layers[k].hidden.size(1) == layers[first].hidden.size(1); ++k) {
      const LstmState state = state_of(k);
      const Tensor input = k == first ? linear(result.y, layers[k].input.to(x.dtype())).transpose(0, 1) : layers[k].input;
      for (const Tensor& tensor :
           {input, layers[k].hidden, layers[k].input_bias, layers[k].hidden_bias, state.hidden, state.cell})
        inputs.push_back(tensor);
    }
    const Results results = recurrence(inputs);
    result.y = results.y.transpose(0, 1);
    result.states.insert(result.states.end(), results.states.begin(), results.states.end());
  }
  return result;
}

}  // namespace

LstmStackResult lstm_stack(const Tensor& x, std::span<const LstmWeights> layers, std::span<const LstmState> states) {
  if (autograd::raises(x)) return lstm_stack(autograd::raised(x), to_f32(layers), states);
  require<ShapeError>(!layers.empty(), "lstm: expected at least one layer, got none");
  require<ShapeError>(states.empty() || states.size() == layers.size(), "lstm: expected a state of ", layers.size(),
                      " layers, got ", states.size());
  for (std::size_t k = 0; k < layers.size(); ++k)
    check(x, k == 0 ? -1 : layers[k - 1].hidden.size(1), layers[k], states.empty() ? LstmState{} : states[k]);
  if (!ops::is_half(x)) return forward(x, layers, states);
  const Tensor wide = x.to(DType::f32);
  LstmStackResult result = records(x, layers) ? forward(wide, to_f32(layers), states) : forward(wide, layers, states);
  result.y = result.y.to(x.dtype());
  return result;
}

LstmResult lstm(const Tensor& x, const LstmWeights& weights, const LstmState& state) {
  const LstmStackResult result = lstm_stack(x, std::span(&weights, 1), std::span(&state, 1));
  return {result.y, result.states[0]};
}

}  // namespace polyphase
