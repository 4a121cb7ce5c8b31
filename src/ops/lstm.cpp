#include "ops/lstm.hpp"

#include <array>

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

void check(const Tensor& x, const LstmWeights& weights, const LstmState& state) {
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
  require_shape("weight_ih", weights.input, {4 * H, x.size(2)});
  require_shape("bias_ih", weights.input_bias, {4 * H});
  require_shape("bias_hh", weights.hidden_bias, {4 * H});
  require_shape("the hidden state", state.hidden, {x.size(0), H});
  require_shape("the cell state", state.cell, {x.size(0), H});
}

// What a pass over all steps keeps for the backward pass.
struct Kept {
  Tensor gates, hidden, cells;  // as in Backend::lstm
  Saved weight;
};

// Gradients of gates, weight, h and c from that of the rows h_1 ... h_T, c_T:
//   dc += dh o (1 - tanh(c)^2), then each gate's part through its activation, dc *= f, dh = dgates weight.
Gradients way_back(const Kept& kept, const Tensor& g, Needs needs) {
  const std::int64_t T = kept.gates.size(0), N = kept.gates.size(1), H = kept.hidden.size(2);
  const Tensor weight = kept.weight.get();
  Tensor dgates = Tensor::empty_like(kept.gates);
  Tensor dh = Tensor::zeros({N, H}, {g.dtype(), g.device()}), dc = g.select(0, T);
  for (std::int64_t t = T - 1; t >= 0; --t) {
    const auto gate = [&, t](const Tensor& of, int which) { return of.select(0, t).narrow(1, which * H, H); };
    const auto through = [](MapOp op, const Tensor& y, const Tensor& gradient) { return ops::map("lstm", op, {y, gradient}); };
    const Tensor i = gate(kept.gates, 0), f = gate(kept.gates, 1), candidate = gate(kept.gates, 2), o = gate(kept.gates, 3);
    const Tensor output = ops::map("lstm", MapOp::tanh, {kept.cells.select(0, t + 1)});
    dh = add(dh, g.select(0, t));
    dc = add(dc, through(MapOp::tanh_grad, output, mul(dh, o)));
    gate(dgates, 0).copy_(through(MapOp::sigmoid_grad, i, mul(dc, candidate)));
    gate(dgates, 1).copy_(through(MapOp::sigmoid_grad, f, mul(dc, kept.cells.select(0, t))));
    gate(dgates, 2).copy_(through(MapOp::tanh_grad, candidate, mul(dc, i)));
    gate(dgates, 3).copy_(through(MapOp::sigmoid_grad, o, mul(dh, output)));
    dc = mul(dc, f);
    dh = matmul(dgates.select(0, t), weight);
  }
  Gradients gradients(4);
  if (needs[1]) {
    const Tensor before = kept.hidden.narrow(0, 0, T).reshape({T * N, H});
    gradients[1] = matmul(dgates.reshape({T * N, 4 * H}).transpose(0, 1), before);
  }
  if (needs[0]) gradients[0] = dgates;
  if (needs[2]) gradients[2] = dh;
  if (needs[3]) gradients[3] = dc;
  return gradients;
}

// h after each step, followed by the last c, (T + 1, N, H), from gates (T, N, 4H) before their activations.
Tensor recurrence(const Tensor& input, const Tensor& weight, const Tensor& h, const Tensor& c) {
  const std::int64_t T = input.size(0), N = input.size(1), H = weight.size(1);
  Kept kept;
  Tensor out;
  {
    const NoGradGuard no_grad;
    kept.gates = input.detach().clone();
    kept.hidden = Tensor::empty({T + 1, N, H}, {input.dtype(), input.device()});
    kept.cells = Tensor::empty_like(kept.hidden);
    kept.hidden.select(0, 0).copy_(h);
    kept.cells.select(0, 0).copy_(c);
    ops::MacCounter::add(static_cast<double>(T * N) * static_cast<double>(4 * H * H));
    backend_of(input.device()).lstm(kept.gates, weight.detach().contiguous(), kept.hidden, kept.cells);
    out = Tensor::empty_like(kept.hidden);
    out.narrow(0, 0, T).copy_(kept.hidden.narrow(0, 1, T));
    out.select(0, T).copy_(kept.cells.select(0, T));
  }
  kept.weight = Saved(weight);
  return autograd::record("lstm", out, {input, weight, h, c},
                          [kept](const Tensor& g, Needs needs) { return way_back(kept, g, needs); });
}

LstmWeights to_f32(const LstmWeights& weights) {
  const auto wide = [](const Tensor& tensor) { return tensor.defined() ? tensor.to(DType::f32) : tensor; };
  return {wide(weights.input), wide(weights.hidden), wide(weights.input_bias), wide(weights.hidden_bias)};
}

}  // namespace

LstmResult lstm(const Tensor& x, const LstmWeights& weights, const LstmState& state) {
  if (autograd::raises(x)) return lstm(autograd::raised(x), to_f32(weights), state);
  check(x, weights, state);
  if (ops::is_half(x)) {
    LstmResult result = lstm(x.to(DType::f32), to_f32(weights), state);
    return {result.y.to(x.dtype()), result.state};
  }
  const AutocastGuard off(std::nullopt);
  const std::int64_t N = x.size(0), L = x.size(1), H = weights.hidden.size(1);
  const auto given = [&](const Tensor& part) { return part.defined() ? part : Tensor::zeros({N, H}, {x.dtype(), x.device()}); };
  const Tensor h = given(state.hidden), c = given(state.cell);
  if (N == 0 || L == 0) return {Tensor::zeros({N, L, H}, {x.dtype(), x.device()}), {h, c}};
  Tensor bias = weights.input_bias.defined() ? weights.input_bias : weights.hidden_bias;
  if (weights.input_bias.defined() && weights.hidden_bias.defined()) bias = add(bias, weights.hidden_bias);
  const Tensor gates = linear(x, weights.input, bias).transpose(0, 1);
  const Tensor all = recurrence(gates, weights.hidden, h, c);
  return {all.narrow(0, 0, L).transpose(0, 1), {all.select(0, L - 1), all.select(0, L)}};
}

}  // namespace polyphase
