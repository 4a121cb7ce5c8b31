#include "cuda/conv/epilogue.cuh"

#include <doctest/doctest.h>

#include "cuda/conv/direct.hpp"
#include "cuda/conv/direct_steps.hpp"
#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core.hpp"
#include "cuda/conv/sm90/tensor_core_forms.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime.hpp"
#include "ops/activations.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh,
                                       Activation::snake};

/// Every byte of a tensor's storage, guards included.
std::vector<char> bytes_of(const Tensor& tensor) {
  std::vector<char> bytes(tensor.storage().bytes());
  gpu().copy_to_host(bytes.data(), tensor.storage().data(), bytes.size());
  return bytes;
}

/// The operands of one direction of a problem on the GPU, `misalignment` elements past an aligned address.
struct Operands {
  ConvProblem problem;
  ConvDirection direction;
  std::int64_t misalignment;
  Shape shape;  // of the result
  Tensor source, w, bias, alpha, beta, residual, result;

  /// What lies beside outputs begins `further` elements further.
  Operands(const ConvProblem& p, ConvDirection direction_, DType dtype, std::int64_t misalignment_, bool is_spread = false,
           std::int64_t further = 0)
      : problem(p), direction(direction_), misalignment(misalignment_) {
    problem.dtype = dtype;
    const bool is_forward = direction == ConvDirection::forward;
    const Shape x{p.N, p.C_in, p.L_in}, y{p.N, p.C_out, p.L_out};
    shape = is_forward ? y : x;
    const Tensor values = random_f64(is_forward ? x : y, 1);
    // Numbers that two halves cannot hold beside the others: many too small, one too large.
    if (is_spread) {
      auto* const numbers = values.data<double>();
      for (std::int64_t i = 0; i < values.numel(); i += 37) numbers[i] *= 1e-12;
      for (std::int64_t i = 0; i < values.numel(); i += values.size(2)) numbers[i] = 0;
      numbers[values.numel() / 2] = 1e20;
    }
    source = placed(values);
    w = placed(random_f64({p.C_in, p.C_out / p.G, p.K}, 2));
    bias = placed(random_f64({shape[1]}, 3));
    alpha = placed(uniform_f64({shape[1]}, 0.5, 2, 4));
    beta = placed(uniform_f64({shape[1]}, 0.5, 2, 5));
    residual = placed(random_f64(shape, 6), further);
    result = placed(uniform_f64(shape, -1, 1, 7), further);
  }
  [[nodiscard]] Tensor placed(const Tensor& values, std::int64_t further = 0) const {
    Tensor to = poisoned(values.shape(), problem.dtype, misalignment + further);
    to.copy_(values.to(problem.dtype));
    return mirrored(to);
  }
  [[nodiscard]] Tensor target(std::int64_t further = 0) const {
    return mirrored(poisoned(shape, problem.dtype, misalignment + further));
  }
  [[nodiscard]] Tensor plain(Algorithm algorithm, Precision precision) const {
    const Tensor out = target();
    const auto run = direction == ConvDirection::forward ? &Backend::conv_forward : &Backend::conv_dgrad;
    (gpu().*run)(problem, source, w, bias, out, algorithm, precision);
    return out;
  }
};

/// `run(epilogue, out)` gives the bits of `plain` finished by map(), with every activation, with and without the rest.
template <class Run>
void check_epilogues(const Operands& operands, const Tensor& plain, const Run& run) {
  for (const Activation activation : kActivations)
    for (const bool adds : {false, true})
      for (const bool keeps : {false, true}) {
        if (activation == Activation::none && !adds && !keeps) continue;
        CAPTURE(operands.problem);
        CAPTURE(operands.direction);
        CAPTURE(static_cast<int>(activation));
        CAPTURE(adds);
        CAPTURE(keeps);
        CAPTURE(operands.misalignment);
        ConvEpilogue epilogue{activation, 0.25, operands.alpha, operands.beta, {}, 0.3};
        if (adds) epilogue.residual = operands.residual;
        // Where the argument is kept need not begin like the output.
        if (keeps) epilogue.before = operands.target(operands.misalignment % 2);
        const Tensor expected = operands.target(), out = operands.target();
        gpu().copy(expected, plain);
        finish_in_place(gpu(), {activation, 0.25, operands.alpha, operands.beta, epilogue.residual, 0.3}, expected);
        run(epilogue, out);
        CHECK(bytes_of(out) == bytes_of(expected));
        if (!keeps) continue;
        const Tensor kept = operands.target(operands.misalignment % 2);
        gpu().copy(kept, plain);
        CHECK(bytes_of(epilogue.before) == bytes_of(kept));
      }
}

/// The same of a product with an activation's derivative, with and without a sum.
template <class Run>
void check_derivatives(const Operands& operands, const Tensor& plain, const Run& run) {
  for (const Activation activation : {Activation::relu, Activation::leaky_relu, Activation::tanh})
    for (const bool adds : {false, true}) {
      CAPTURE(operands.problem);
      CAPTURE(operands.direction);
      CAPTURE(static_cast<int>(activation));
      CAPTURE(adds);
      CAPTURE(operands.misalignment);
      ConvEpilogue epilogue{.activation = activation, .slope = 0.25, .scale = 0.3, .derivative = operands.result};
      if (adds) epilogue.residual = operands.residual;
      const Tensor expected = operands.target(), out = operands.target();
      gpu().copy(expected, plain);
      finish_in_place(gpu(), epilogue, expected);
      run(epilogue, out);
      CHECK(bytes_of(out) == bytes_of(expected));
    }
}

/// As many as there are algorithms and precisions that can do it.
int check_algorithms(const ConvProblem& problem, DType dtype, std::int64_t misalignment, bool is_spread = false) {
  int ran = 0;
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const Operands operands(problem, direction, dtype, misalignment, is_spread);
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::depthwise, Algorithm::gemm, Algorithm::tensor_core})
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        if (precision == Precision::tf32 && (dtype != DType::f32 || algorithm != Algorithm::tensor_core)) continue;
        if (gpu().can_implement(operands.problem, direction, algorithm, precision)) continue;
        CAPTURE(algorithm);
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          gpu().conv_activated(operands.problem, direction, operands.source, operands.w, operands.bias, out, epilogue,
                               algorithm, precision);
        };
        const Tensor plain = operands.plain(algorithm, precision);
        check_epilogues(operands, plain, run);
        check_derivatives(operands, plain, run);
        ++ran;
      }
  }
  return ran;
}

/// Distances in bytes from `out`.
cuda::Epilogue pointers_of(const ConvEpilogue& epilogue, const Operands& operands, const Tensor& out) {
  const auto distance = [&](const Tensor& to) -> std::int64_t {
    return to.defined() ? static_cast<const char*>(to.raw()) - static_cast<const char*>(out.raw()) : 0;
  };
  return {epilogue.activation,         epilogue.slope, operands.alpha.raw(),      operands.beta.raw(),
          distance(epilogue.residual), epilogue.scale, distance(epilogue.before), distance(epilogue.derivative)};
}

/// By one form, f32 in fp32 and tf32, with and without sums to compute again: what `fuses` says of activations of a few
/// instructions, a residual and a derivative has the bits of the steps apart. Of how many with one of the last two.
template <class Fuses>
int check_light(const ConvProblem& problem, cuda::tensor_core::GatherForm form, const Fuses& fuses,
                std::int64_t misalignment = 0, std::int64_t further = 0) {
  int late = 0;
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
    for (const Precision precision : {Precision::fp32, Precision::tf32})
      for (const bool is_spread : {false, true}) {
        const Operands operands(problem, direction, DType::f32, misalignment, is_spread, further);
        const Tensor plain = operands.target();
        const cuda::tensor_core::FormProblem asked{operands.problem, direction, precision, operands.source.raw(), plain.raw()};
        if (!cuda::tensor_core::form_work(form, asked, cuda::properties(0))) continue;
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          cuda::tensor_core::gather_by(
              form, {operands.problem, direction, precision, operands.source.raw(), operands.w.raw(), operands.bias.raw(),
                     out.raw(), pointers_of(epilogue, operands, out), 0, cuda::current_stream(0)});
        };
        const std::uint64_t before = cuda::computed_again(0);
        run({}, plain);
        if (is_spread) CHECK(cuda::computed_again(0) > before);
        for (const Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu})
          for (const bool adds : {false, true})
            for (const bool derives : {false, true}) {
              if (derives && activation == Activation::none) continue;
              CAPTURE(problem);
              CAPTURE(direction);
              CAPTURE(precision);
              CAPTURE(is_spread);
              CAPTURE(static_cast<int>(activation));
              CAPTURE(adds);
              CAPTURE(derives);
              CAPTURE(misalignment);
              CAPTURE(further);
              ConvEpilogue epilogue{.activation = activation, .slope = 0.25, .scale = 0.3};
              if (adds) epilogue.residual = operands.residual;
              if (derives) epilogue.derivative = operands.result;
              const Tensor expected = operands.target(), out = operands.target();
              if (!fuses(asked, pointers_of(epilogue, operands, out))) continue;
              late += adds || derives ? 1 : 0;
              gpu().copy(expected, plain);
              finish_in_place(gpu(), epilogue, expected);
              run(epilogue, out);
              CHECK(bytes_of(out) == bytes_of(expected));
            }
      }
  return late;
}

/// Ways of storing: strides, gaps between taps, groups, rows that begin anywhere, few and many channels.
std::vector<ConvProblem> problems() {
  return thinned(std::vector<ConvProblem>{
      sized({.N = 2, .C_in = 3, .C_out = 18, .L_in = 150, .K = 5}),
      sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 151, .K = 4, .S = 2, .P_l = 1}),
      sized({.N = 1, .C_in = 3, .C_out = 5, .L_in = 150, .K = 3, .S = 2, .D = 2}),
      sized({.N = 2, .C_in = 3, .C_out = 18, .L_in = 150, .K = 3, .S = 5, .P_l = 2, .P_r = 1}),
      sized({.N = 1, .C_in = 16, .C_out = 24, .L_in = 700, .K = 8, .S = 4, .P_l = 2, .P_r = 2}),
      sized({.N = 3, .C_in = 64, .C_out = 64, .L_in = 301, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 32, .C_out = 16, .L_in = 260, .K = 3, .S = 2, .P_l = 1, .OP = 1, .G = 2}),
      sized({.N = 1, .C_in = 256, .C_out = 256, .L_in = 200, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 600, .K = 3}),
      sized({.N = 3, .C_in = 160, .C_out = 136, .L_in = 333, .K = 7, .P_l = 9, .P_r = 9, .D = 3}),
      sized({.N = 2, .C_in = 256, .C_out = 140, .L_in = 2001, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 530, .K = 11, .P_l = 5, .P_r = 5}),
      sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 404, .K = 5, .D = 3}),
      sized({.N = 1, .C_in = 300, .C_out = 40, .L_in = 50, .K = 16, .S = 8, .P_l = 4}),
      sized({.N = 2, .C_in = 128, .C_out = 20, .L_in = 210, .K = 9, .S = 3, .P_l = 2}),
      sized({.N = 2, .C_in = 6, .C_out = 6, .L_in = 1031, .K = 7, .P_l = 3, .P_r = 3, .G = 6}),
      sized({.N = 2, .C_in = 6, .C_out = 12, .L_in = 517, .K = 8, .S = 4, .P_l = 2, .P_r = 2, .G = 6}),
      sized({.N = 1, .C_in = 6, .C_out = 6, .L_in = 300, .K = 3, .S = 3, .D = 2, .G = 6}),
      sized({.N = 1, .C_in = 4, .C_out = 4, .L_in = 1, .K = 1, .G = 4}),
  });
}

void check_all(DType dtype) {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  int ran = 0, turn = 0;
  for (const ConvProblem& problem : problems()) ran += check_algorithms(problem, dtype, turn++ % 3);
  CHECK(ran >= 2);
}

}  // namespace

TEST_CASE("f32: every algorithm, activation, sum and kept argument has the bits of the steps apart") { check_all(DType::f32); }
TEST_CASE("f64: every algorithm, activation, sum and kept argument has the bits of the steps apart") { check_all(DType::f64); }
TEST_CASE("f16: every algorithm, activation, sum and kept argument has the bits of the steps apart") { check_all(DType::f16); }
TEST_CASE("bf16: every algorithm, activation, sum and kept argument has the bits of the steps apart") {
  check_all(DType::bf16);
}

TEST_CASE("f32: sums that tensor cores compute again behind the product, finished like the others") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  int ran = 0, turn = 0;
  for (const ConvProblem& problem : problems()) ran += check_algorithms(problem, DType::f32, turn++ % 3, true);
  CHECK(ran >= 2);
}

TEST_CASE("every tile of the direct kernels, and sums of slices") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const auto tiles = static_cast<int>(cuda::direct::kTiles32.size());
  for (const ConvProblem& problem : {sized({.N = 2, .C_in = 40, .C_out = 34, .L_in = 290, .K = 4, .S = 2, .P_l = 1}),
                                     sized({.N = 1, .C_in = 21, .C_out = 19, .L_in = 601, .K = 5, .P_l = 2, .D = 2})})
    for (int tile = 0; tile < tiles; ++tile)
      for (const int slices : {0, 3}) {
        if (is_reduced() && (tile + slices) % 5 != 0) continue;
        const Operands operands(problem, ConvDirection::forward, DType::f32, tile % 3);
        CAPTURE(tile);
        CAPTURE(slices);
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          cuda::direct::gather(operands.problem, operands.direction, operands.source.raw(), operands.w.raw(),
                               operands.bias.raw(), out.raw(), pointers_of(epilogue, operands, out), 0, cuda::current_stream(0),
                               tile, slices);
        };
        const Tensor plain = operands.target();
        run({}, plain);
        check_epilogues(operands, plain, run);
        check_derivatives(operands, plain, run);
      }
}

TEST_CASE("tensor cores that keep their weights apply ReLU and LeakyReLU, and some of 16 bits add a residual") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  ConvProblem p = sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 400, .K = 5, .P_l = 2, .P_r = 2});
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const auto fuses = [&](DType dtype, const cuda::Epilogue& epilogue) {
      p.dtype = dtype;
      return cuda::tensor_core::fuses(p, direction, epilogue, Precision::fp32, 0);
    };
    CHECK(fuses(DType::bf16, {Activation::relu}));
    CHECK(fuses(DType::f16, {Activation::leaky_relu, 0.1}));
    CHECK(fuses(DType::bf16, {Activation::none, 0, nullptr, nullptr, 16}));
    CHECK_FALSE(fuses(DType::f16, {.activation = Activation::relu, .derivative = 16}));
    CHECK_FALSE(fuses(DType::bf16, {.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16, .derivative = 16}));
    CHECK_FALSE(fuses(DType::bf16, {Activation::tanh}));
    CHECK_FALSE(fuses(DType::bf16, {Activation::snake}));
    CHECK(fuses(DType::f32, {Activation::relu}));  // boxes
    CHECK(fuses(DType::f32, {.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16}));
    CHECK_FALSE(fuses(DType::f32, {Activation::tanh}));
  }
  const ConvProblem strided = sized({.N = 1, .C_in = 128, .C_out = 20, .L_in = 210, .K = 9, .S = 3});
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses(strided, ConvDirection::forward, epilogue, Precision::fp32, 0);
  };
  CHECK(fuses({Activation::relu}));
  CHECK(fuses({Activation::leaky_relu, 0.1}));
}

TEST_CASE("tensor cores that keep weights in registers apply ReLU and LeakyReLU, behind the repair where sums may be wrong") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using cuda::tensor_core::GatherForm;
  // Most tiles have a number that is too small, and a warp has more of them than it remembers.
  const std::int64_t N = is_reduced() ? 3 : 150;
  const ConvProblem p = sized({.N = N, .C_in = 16, .C_out = 16, .L_in = 2048, .K = 8, .S = 4, .P_l = 2, .P_r = 2});
  Tensor values = Tensor::randn({N, 16, 2048});
  for (std::int64_t i = 0; i < values.numel(); i += 61) values.data<float>()[i] *= 1e-9F;
  const Tensor source = values.to(Device::cuda()), w = Tensor::randn({16, 16, 8}).to(Device::cuda());
  const auto run = [&](const cuda::Epilogue& epilogue) {
    Tensor out = Tensor::empty({N, 16, p.L_out}, {.device = Device::cuda()});
    cuda::tensor_core::gather_by(GatherForm::narrow, {p, ConvDirection::forward, Precision::fp32, source.raw(), w.raw(),
                                                      nullptr, out.raw(), epilogue, 0, cuda::current_stream(0)});
    return out;
  };
  const std::uint64_t before = cuda::computed_again(0);
  const Tensor plain = run({});
  CHECK(cuda::computed_again(0) > before);
  CHECK(bytes_of(run({Activation::leaky_relu, 0.1})) == bytes_of(leaky_relu(plain, 0.1)));
  CHECK(bytes_of(run({Activation::relu})) == bytes_of(relu(plain)));

  const ConvProblem chosen = sized({.N = 32, .C_in = 64, .C_out = 32, .L_in = 2048, .K = 8, .S = 4, .P_l = 2, .P_r = 2});
  const auto form = cuda::tensor_core::chosen_form({chosen, ConvDirection::forward, Precision::fp32}, 0);
  REQUIRE((form && form->form == GatherForm::narrow));
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses(chosen, ConvDirection::forward, epilogue, Precision::fp32, 0);
  };
  CHECK(fuses({Activation::relu}));
  CHECK(fuses({Activation::leaky_relu, 0.1}));
  CHECK_FALSE(fuses({Activation::tanh}));
  CHECK_FALSE(fuses({.residual = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .derivative = 16}));
}

TEST_CASE("rows of 128 columns add a residual and go through a derivative where they store pairs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto of_rows = [](const FormProblem& asked, const cuda::Epilogue& epilogue) {
    return resident_rows_fuse(asked.problem, asked.direction, epilogue, asked.precision, 0, asked.source, asked.out);
  };
  const auto late_of = [&](const ConvProblem& problem) { return check_light(problem, GatherForm::rows, of_rows); };
  // Whole tiles and rows' ends, samples that begin inside and outside of the padding, one and two halves of a tile. The third
  // showed what a stage that is given back before it is read does, in fp32 with both: reads wait behind those of the residual.
  CHECK(late_of(sized({.N = 3, .C_in = 128, .C_out = 128, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1})) == 7 * 8);
  CHECK(late_of(sized({.N = 2, .C_in = 128, .C_out = 64, .L_in = 1440, .K = 5})) == 7 * 4);
  CHECK(late_of(sized({.N = 2, .C_in = 256, .C_out = 256, .L_in = 384, .K = 3, .P_l = 4, .P_r = 6, .G = 2})) == 7 * 8);
  ConvProblem p = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 8192, .K = 3, .P_l = 1, .P_r = 1});
  const auto fuses = [&](const cuda::Epilogue& epilogue, Precision precision = Precision::fp32, std::uintptr_t out = 0) {
    return cuda::tensor_core::fuses(p, ConvDirection::forward, epilogue, precision, 0, nullptr,
                                    reinterpret_cast<const void*>(out));
  };
  const auto form = cuda::tensor_core::chosen_form({p, ConvDirection::forward, Precision::fp32}, 0);
  REQUIRE((form && form->form == cuda::tensor_core::GatherForm::rows));
  CHECK(fuses({.residual = 16}));
  CHECK(fuses({.residual = 8}));
  CHECK_FALSE(fuses({.residual = 4}));  // pairs of it are not aligned
  CHECK_FALSE(fuses({.residual = 16}, Precision::fp32, 4));
  CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16, .derivative = 32}));
  CHECK_FALSE(fuses({.activation = Activation::tanh, .derivative = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .before = 16}));
}

TEST_CASE("boxes add a residual or go through a derivative where they stage outputs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto of_boxes = [](const FormProblem&, const cuda::Epilogue& epilogue) {
    return epilogue.is_light() && (epilogue.residual == 0 || epilogue.derivative == 0) &&
           (epilogue.residual + epilogue.derivative) % 16 == 0;
  };
  const auto late_of = [&](const ConvProblem& problem, std::int64_t misalignment = 0, std::int64_t further = 0) {
    return check_light(problem, GatherForm::boxes, of_boxes, misalignment, further);
  };
  // Rows of whole lines, whole sectors, even and odd ones, shorter than a tile and than a sector; drawn and dealt out; groups.
  constexpr int kEach = 5;  // of a direction, a precision and numbers
  CHECK(late_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1024, .K = 7, .P_l = 3, .P_r = 3})) == 8 * kEach);
  CHECK(late_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1}), 0, 4) == 8 * kEach);
  CHECK(late_of(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 700, .K = 5, .P_l = 6, .P_r = 6, .D = 3}), 0, 8) == 8 * kEach);
  CHECK(late_of(sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 702, .K = 3}), 2, 4) > 0);
  CHECK(late_of(sized({.N = 1, .C_in = 64, .C_out = 64, .L_in = 701, .K = 3, .P_l = 1, .P_r = 1}), 1, 12) > 0);
  CHECK(late_of(sized({.N = 3, .C_in = 8, .C_out = 8, .L_in = 5, .K = 9, .P_l = 3, .P_r = 4})) > 0);
  CHECK(late_of(sized({.N = 2, .C_in = 48, .C_out = 80, .L_in = 256, .K = 2, .D = 7, .G = 2})) > 0);
  CHECK(late_of(sized({.N = 150, .C_in = 16, .C_out = 32, .L_in = 512, .K = 3, .P_l = 1, .P_r = 1})) == 8 * kEach);
  const ConvProblem p = sized({.N = 16, .C_in = 64, .C_out = 64, .L_in = 65536, .K = 5, .P_l = 2, .P_r = 2});
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses(p, ConvDirection::forward, epilogue, Precision::tf32, 0);
  };
  const auto form = chosen_form({p, ConvDirection::forward, Precision::tf32}, 0);
  REQUIRE((form && form->form == GatherForm::boxes));
  CHECK(fuses({.residual = 16}));
  CHECK_FALSE(fuses({.residual = 8}));
  CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .derivative = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .residual = 16, .derivative = 32}));  // no room for two
  CHECK_FALSE(fuses({.activation = Activation::tanh, .derivative = 16}));
}

TEST_CASE("the wide form of f32 adds a residual, or takes a derivative, where it puts rows together") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  ConvProblem p = sized({.N = 4, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 3, .P_l = 1, .P_r = 1});
  const auto fuses = [&](DType dtype, const cuda::Epilogue& epilogue) {
    p.dtype = dtype;
    return cuda::tensor_core::fuses(p, ConvDirection::forward, epilogue, Precision::fp32, 0);
  };
  const cuda::Epilogue sum{.residual = 16}, active{.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16};
  const cuda::Epilogue derivative{.activation = Activation::relu, .derivative = 16};
  for (const cuda::Epilogue& epilogue : {sum, active, derivative}) {
    CHECK(fuses(DType::f32, epilogue));
    CHECK_FALSE(fuses(DType::bf16, epilogue));
  }
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::relu, .residual = 16, .derivative = 32}));  // no room for two
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::tanh, .derivative = 16}));
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::snake, .before = 16}));
}

TEST_CASE("which algorithms form a derivative where they store") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const ConvProblem p = sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 400, .K = 5, .P_l = 2, .P_r = 2});
  const ConvProblem apart = sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 400, .K = 5, .P_l = 2, .P_r = 2, .G = 32});
  const ConvEpilogue epilogue{.activation = Activation::relu, .derivative = Tensor::empty({1})};
  const auto fuses = [&](const ConvProblem& problem, Algorithm algorithm) {
    return gpu().fuses(problem, ConvDirection::dgrad, epilogue, algorithm, Precision::fp32);
  };
  CHECK(fuses(p, Algorithm::direct));
  CHECK(fuses(apart, Algorithm::depthwise));
  CHECK(fuses(apart, Algorithm::automatic));
  CHECK_FALSE(fuses(p, Algorithm::gemm));  // cuBLAS stores
}
