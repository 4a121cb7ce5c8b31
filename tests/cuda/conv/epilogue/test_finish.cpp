#include "cuda/conv/epilogue/finish.hpp"

#include <doctest/doctest.h>

#include "cuda/runtime/runtime.hpp"
#include "support/device.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::vector<char> bytes_of(const Tensor& tensor) {
  std::vector<char> bytes(tensor.storage().bytes());
  gpu().copy_to_host(bytes.data(), tensor.storage().data(), bytes.size());
  return bytes;
}

/// finish() has the bits of the steps by map() and changes nothing around `out`. Tensors begin `shift` elements after an
/// aligned address; the alignment of the derivative's operand follows from `shift` and one.
void check(const ConvEpilogue& of, bool adds, bool keeps, const Shape& shape, DType dtype, std::int64_t shift) {
  CAPTURE(static_cast<int>(of.activation));
  CAPTURE(of.derivative.defined());
  CAPTURE(adds);
  CAPTURE(keeps);
  CAPTURE(shape);
  CAPTURE(dtype);
  CAPTURE(shift);
  const auto placed = [&](const Tensor& values, std::int64_t from) {
    Tensor to = poisoned(values.shape(), dtype, from);
    to.copy_(values.to(dtype));
    return mirrored(to);
  };
  ConvEpilogue epilogue = of;
  epilogue.alpha = placed(uniform_f64({shape[1]}, 0.5, 2, 1), 0);
  epilogue.beta = placed(uniform_f64({shape[1]}, 0.5, 2, 2), 0);
  if (of.derivative.defined()) epilogue.derivative = placed(uniform_f64(shape, -1, 1, 3), shift + 1);
  if (adds) epilogue.residual = placed(random_f64(shape, 4), shift);
  if (keeps) epilogue.before = mirrored(poisoned(shape, dtype, shift));
  const Tensor expected = placed(random_f64(shape, 5), shift), out = placed(random_f64(shape, 5), shift);
  finish_in_place(gpu(), epilogue, expected);
  const std::vector<char> kept = keeps ? bytes_of(epilogue.before) : std::vector<char>();
  if (keeps) epilogue.before = mirrored(poisoned(shape, dtype, shift));
  const auto distance = [&](const Tensor& to) {
    return to.defined() ? static_cast<const char*>(to.raw()) - static_cast<const char*>(out.raw()) : 0;
  };
  const cuda::Epilogue pointers{
      epilogue.activation,         epilogue.slope, epilogue.alpha.raw(),      epilogue.beta.raw(),
      distance(epilogue.residual), epilogue.scale, distance(epilogue.before), distance(epilogue.derivative)};
  cuda::finish(pointers, dtype, shape[0], shape[1], shape[2], out.raw(), cuda::current_stream(0));
  CHECK(bytes_of(out) == bytes_of(expected));
  if (!keeps) return;
  CHECK(bytes_of(epilogue.before) == kept);
  // From sums that a kernel left in the buffer of the kept argument.
  const Tensor again = mirrored(poisoned(shape, dtype, shift));
  const cuda::Epilogue from_kept{epilogue.activation,
                                 epilogue.slope,
                                 epilogue.alpha.raw(),
                                 epilogue.beta.raw(),
                                 adds ? distance(epilogue.residual) - distance(again) : 0,
                                 epilogue.scale,
                                 distance(epilogue.before) - distance(again),
                                 0};
  cuda::finish(from_kept, dtype, shape[0], shape[1], shape[2], again.raw(), cuda::current_stream(0), true);
  CHECK(bytes_of(again) == bytes_of(expected));
  CHECK(bytes_of(epilogue.before) == kept);
}

}  // namespace

TEST_CASE("one launch has the bits of one step after another") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const std::vector<Shape> shapes =
      is_reduced() ? std::vector<Shape>{{2, 3, 1031}} : std::vector<Shape>{{1, 1, 1}, {2, 3, 7}, {3, 5, 1031}, {2, 2, 9001}};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Shape& shape : shapes)
      for (const std::int64_t shift : {0, 1})
        for (const bool adds : {false, true}) {
          for (const Activation activation :
               {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh, Activation::snake})
            for (const bool keeps : {false, true})
              check({.activation = activation, .slope = 0.25, .scale = 0.3}, adds, keeps, shape, dtype, shift);
          for (const Activation activation : {Activation::relu, Activation::leaky_relu, Activation::tanh})
            check({.activation = activation, .slope = 0.25, .scale = 0.3, .derivative = Tensor::zeros({1})}, adds, false, shape,
                  dtype, shift);
        }
}

TEST_CASE("nothing to finish") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  cuda::finish({Activation::relu}, DType::f32, 0, 3, 5, nullptr, cuda::current_stream(0));
  CHECK(cudaStreamSynchronize(cuda::current_stream(0)) == cudaSuccess);
}
