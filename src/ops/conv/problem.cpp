#include "ops/conv/problem.hpp"

#include <algorithm>
#include <array>

#include "ops/dispatch.hpp"

namespace polyphase::ops {

namespace {

// Above this a product of two hyper-parameters and a length may not fit in 64 bits.
constexpr std::int64_t kMaxParameter = std::int64_t{1} << 30;
constexpr std::int64_t kMaxLength = std::int64_t{1} << 62;  // divided by its factors

void require_parameter(const char* operation, const char* name, std::int64_t value, std::int64_t least) {
  require<ShapeError>(value >= least, operation, ": expected ", name, " >= ", least, ", got ", value);
  require<ShapeError>(value <= kMaxParameter, operation, ": expected ", name, " <= ", kMaxParameter, ", got ", value);
}

void require_parameters(const char* operation, std::int64_t stride, Padding padding, std::int64_t dilation) {
  require_parameter(operation, "stride", stride, 1);
  require_parameter(operation, "dilation", dilation, 1);
  require_parameter(operation, "padding", std::min(padding.left, padding.right), 0);
  require_parameter(operation, "padding", std::max(padding.left, padding.right), 0);
}

// The checks common to both layers; `weight_form` names the weight's dimensions, dimension 0 being `weight_rows`.
void require_tensors(const char* operation, const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t groups,
                     const char* weight_form, const char* weight_rows) {
  require_defined(operation, "x", x);
  require_defined(operation, "weight", weight);
  require_floating(operation, x);
  require_alike(operation, std::array{x, weight, bias});
  require<ShapeError>(weight.rank() == 3, operation, ": expected weight ", weight_form, ", got ", weight.shape());
  require_parameter(operation, "kernel size", weight.size(2), 1);
  require<ShapeError>(weight.size(0) >= 1 && weight.size(1) >= 1, operation, ": expected weight ", weight_form,
                      " with at least one channel, got ", weight.shape());
  require_parameter(operation, "groups", groups, 1);
  require<ShapeError>(weight.size(0) % groups == 0, operation, ": expected groups to divide ", weight_rows, "=", weight.size(0),
                      ", got ", groups);
}

void require_x(const char* operation, const Tensor& x, std::int64_t channels, std::int64_t longest) {
  require<ShapeError>(x.rank() == 2 || x.rank() == 3, operation, ": expected x (N, C_in=", channels,
                      ", L_in) or (C_in=", channels, ", L_in), got ", x.shape());
  require<ShapeError>(x.size(-2) == channels, operation, ": expected x ", x.rank() == 3 ? "(N, " : "(", "C_in=", channels,
                      ", L_in), got ", x.shape());
  require<ShapeError>(x.size(-1) >= 1, operation, ": expected x with L_in >= 1, got ", x.shape());
  require<ShapeError>(x.size(-1) <= longest, operation, ": expected x with L_in <= ", longest, ", got ", x.shape());
}

std::int64_t batch_of(const Tensor& x) { return x.rank() == 3 ? x.size(0) : 1; }

void require_bias(const char* operation, const Tensor& bias, std::int64_t channels) {
  if (bias.defined())
    require<ShapeError>(bias.shape() == Shape{channels}, operation, ": expected bias (C_out=", channels, "), got ",
                        bias.shape());
}

// The output padding that gives the requested length.
std::int64_t output_padding_for(const ConvProblem& problem, const ConvTranspose1dOptions& options, std::int64_t least) {
  require<ShapeError>(options.output_padding == 0, "conv_transpose1d: expected output_size or output_padding, got both (",
                      *options.output_size, " and ", options.output_padding, ")");
  const std::int64_t most = least + std::max(problem.S, problem.D) - 1;
  require<ShapeError>(*options.output_size >= least && *options.output_size <= most,
                      "conv_transpose1d: expected output_size in [", least, ", ", most, "], got ", *options.output_size);
  return *options.output_size - least;
}

}  // namespace

Padding resolve_padding(const char* operation, Padding padding, std::int64_t kernel_size, std::int64_t stride,
                        std::int64_t dilation) {
  if (!padding.is_same) return padding;
  require<ShapeError>(stride == 1, operation, ": expected stride 1 with padding same, got ", stride);
  require_parameter(operation, "kernel size", kernel_size, 1);
  require_parameter(operation, "dilation", dilation, 1);
  const std::int64_t total = dilation * (kernel_size - 1);
  return {total / 2, total - total / 2};
}

ConvProblem conv_transpose1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                     const ConvTranspose1dOptions& options) {
  const char* const operation = "conv_transpose1d";
  require_tensors(operation, x, weight, bias, options.groups, "(C_in, C_out/G, K)", "C_in");
  require<ShapeError>(!options.padding.is_same, operation, ": expected a padding in numbers, got same");
  require_parameters(operation, options.stride, options.padding, options.dilation);
  require_x(operation, x, weight.size(0), kMaxLength / options.stride);

  ConvProblem problem;
  problem.N = batch_of(x);
  problem.C_in = x.size(-2);
  problem.C_out = weight.size(1) * options.groups;
  problem.L_in = x.size(-1);
  problem.K = weight.size(2);
  problem.S = options.stride;
  problem.P_l = options.padding.left;
  problem.P_r = options.padding.right;
  problem.OP = options.output_padding;
  problem.D = options.dilation;
  problem.G = options.groups;
  problem.dtype = x.dtype();
  require_bias(operation, bias, problem.C_out);

  const std::int64_t least =
      conv_transpose1d_length(problem.L_in, problem.K, problem.S, problem.P_l, problem.P_r, 0, problem.D);
  if (options.output_size) problem.OP = output_padding_for(problem, options, least);
  require<ShapeError>(problem.OP >= 0 && problem.OP < std::max(problem.S, problem.D), operation,
                      ": expected 0 <= output_padding < max(S, D)=", std::max(problem.S, problem.D), ", got ", problem.OP);
  problem.L_out = least + problem.OP;
  require<ShapeError>(problem.L_out >= 1, operation, ": expected an output length >= 1, got L_out=", problem.L_out,
                      " from L_in=", problem.L_in, " K=", problem.K, " S=", problem.S, " P_l=", problem.P_l,
                      " P_r=", problem.P_r, " OP=", problem.OP, " D=", problem.D);
  return problem;
}

ConvProblem conv1d_problem(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  const char* const operation = "conv1d";
  require_tensors(operation, x, weight, bias, options.groups, "(C_out, C_in/G, K)", "C_out");
  require_parameters(operation, options.stride, {0, 0}, options.dilation);
  const Padding padding = resolve_padding(operation, options.padding, weight.size(2), options.stride, options.dilation);
  if (!options.padding.is_same) require_parameters(operation, options.stride, padding, options.dilation);
  require_x(operation, x, weight.size(1) * options.groups, kMaxLength);
  require_bias(operation, bias, weight.size(0));

  ConvProblem problem;
  problem.N = batch_of(x);
  problem.C_in = weight.size(0);
  problem.C_out = x.size(-2);
  problem.L_out = x.size(-1);
  problem.K = weight.size(2);
  problem.S = options.stride;
  problem.P_l = padding.left;
  problem.P_r = padding.right;
  problem.D = options.dilation;
  problem.G = options.groups;
  problem.dtype = x.dtype();

  const std::int64_t room = problem.L_out + problem.P_l + problem.P_r - problem.D * (problem.K - 1) - 1;
  require<ShapeError>(
      room >= 0, operation, ": expected a kernel of at most L_in + P_l + P_r=", problem.L_out + problem.P_l + problem.P_r,
      " positions, got D*(K - 1) + 1=", problem.D * (problem.K - 1) + 1, " (K=", problem.K, " D=", problem.D, ")");
  problem.L_in = room / problem.S + 1;
  problem.OP = room % problem.S;  // positions at the right end that no window reaches
  return problem;
}

}  // namespace polyphase::ops
