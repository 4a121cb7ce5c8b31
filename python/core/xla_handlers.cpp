// Convolutions as handlers of XLA's foreign function interface, for polyphase.jax. Each is also a C symbol of the extension,
// polyphase_conv_forward_cuda and so on, so that other users of XLA can load it. XLA owns all memory; work goes to its stream.
//
// Every handler takes the attributes `problem` (the 12 numbers of python/core/raw_conv.hpp's Problem as s64) and `precision`.
//   forward  x, w, bias -> y     dgrad  dy, w -> dx     wgrad  x, dy -> dw, db     an array without elements: none

#include <array>
#include <string>
#include <utility>

#include "casters.hpp"
#include "core.hpp"
#include "cuda/memory/workspace.hpp"
#include "raw_conv.hpp"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace polyphase::python {
namespace {

using Numbers = ffi::Span<const std::int64_t>;
using Out = ffi::Result<ffi::AnyBuffer>;

Problem problem_of(Numbers numbers) {
  require<Error>(numbers.size() == 12, "polyphase.jax: expected a problem of 12 numbers, got ", numbers.size());
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return Problem{numbers[0] != 0, numbers[I + 1]...}; }
  (std::make_index_sequence<11>());
}

std::string_view dtype_of(const ffi::AnyBuffer& buffer) {
  switch (buffer.element_type()) {
    case ffi::DataType::F32:
      return "f32";
    case ffi::DataType::F64:
      return "f64";
    case ffi::DataType::F16:
      return "f16";
    case ffi::DataType::BF16:
      return "bf16";
    default:
      throw DTypeError("polyphase.jax: expected float32, float64, float16 or bfloat16 arrays");
  }
}

Address address_of(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() == 0 ? 0 : reinterpret_cast<Address>(buffer.untyped_data());
}

/// Throws ShapeError unless a buffer has as many elements as the kernel reads or writes.
void require_size(const char* what, const ffi::AnyBuffer& buffer, const Shape& shape) {
  require<ShapeError>(static_cast<std::int64_t>(buffer.element_count()) == shape.numel(), "polyphase.jax: expected ", what, " ",
                      shape, ", got ", buffer.element_count(), " elements");
}

/// Where a call runs: the CPU, or a GPU with XLA's stream and memory for the workspace.
struct Platform {
  int device = -1;
  void* stream = nullptr;
  ffi::ScratchAllocator* scratch = nullptr;

  [[nodiscard]] Execution execution(const Problem& problem, std::string_view dtype, const char* direction,
                                    std::string_view precision) const {
    const std::size_t size = device < 0 ? 0 : workspace_bytes(problem, dtype, direction, precision, device);
    Execution made{0, size, device, reinterpret_cast<Address>(stream), precision};
    if (size > 0) {
      // XLA gives memory for an alignment of at most 16 bytes.
      constexpr std::size_t kGiven = 16, kAlignment = cuda::Workspace::kAlignment;
      const auto memory = scratch->Allocate(size + kAlignment - kGiven, kGiven);
      require<OutOfMemory>(memory.has_value(), "polyphase.jax: XLA has no ", size, " bytes for the workspace of ", direction);
      made.workspace = (reinterpret_cast<Address>(*memory) + kAlignment - 1) / kAlignment * kAlignment;
    }
    return made;
  }
};

/// The exceptions of a call as XLA's errors.
template <class Function>
ffi::Error guarded(const Function& function) {
  try {
    function();
    return ffi::Error::Success();
  } catch (const OutOfMemory& error) {
    return {ffi::ErrorCode::kResourceExhausted, error.what()};
  } catch (const NotImplemented& error) {
    return {ffi::ErrorCode::kUnimplemented, error.what()};
  } catch (const Error& error) {
    return {ffi::ErrorCode::kInvalidArgument, error.what()};
  } catch (const std::exception& error) {
    return {ffi::ErrorCode::kInternal, error.what()};
  }
}

ffi::Error forward(const Platform& platform, ffi::AnyBuffer x, ffi::AnyBuffer w, ffi::AnyBuffer bias, Out y, Numbers numbers,
                   std::string_view precision) {
  return guarded([&] {
    const Problem problem = problem_of(numbers);
    const std::string_view dtype = dtype_of(x);
    const Layer layer(problem, parse<DType>(dtype));
    require_size("x", x, layer.input);
    require_size("w", w, layer.weight);
    if (bias.element_count() > 0) require_size("bias", bias, {layer.channels});
    require_size("y", *y, layer.output);
    conv_forward(problem, dtype, address_of(x), address_of(w), address_of(bias), address_of(*y), {},
                 platform.execution(problem, dtype, "forward", precision));
  });
}

ffi::Error dgrad(const Platform& platform, ffi::AnyBuffer dy, ffi::AnyBuffer w, Out dx, Numbers numbers,
                 std::string_view precision) {
  return guarded([&] {
    const Problem problem = problem_of(numbers);
    const std::string_view dtype = dtype_of(dy);
    const Layer layer(problem, parse<DType>(dtype));
    require_size("dy", dy, layer.output);
    require_size("w", w, layer.weight);
    require_size("dx", *dx, layer.input);
    conv_backward(problem, dtype, 0, address_of(w), address_of(dy), {address_of(*dx), 0, 0},
                  platform.execution(problem, dtype, "dgrad", precision));
  });
}

ffi::Error wgrad(const Platform& platform, ffi::AnyBuffer x, ffi::AnyBuffer dy, Out dw, Out db, Numbers numbers,
                 std::string_view precision) {
  return guarded([&] {
    const Problem problem = problem_of(numbers);
    const std::string_view dtype = dtype_of(x);
    const Layer layer(problem, parse<DType>(dtype));
    require_size("x", x, layer.input);
    require_size("dy", dy, layer.output);
    require_size("dw", *dw, layer.weight);
    if (db->element_count() > 0) require_size("db", *db, {layer.channels});
    conv_backward(problem, dtype, address_of(x), 0, address_of(dy), {0, address_of(*dw), address_of(*db)},
                  platform.execution(problem, dtype, "wgrad", precision));
  });
}

/// `function` on the CPU, and on a GPU.
template <auto function, class... Buffers>
ffi::Error on_cpu(Buffers... buffers) {
  return function(Platform{}, buffers...);
}
template <auto function, class... Buffers>
ffi::Error on_cuda(std::int32_t device, void* stream, ffi::ScratchAllocator scratch, Buffers... buffers) {
  return function(Platform{device, stream, &scratch}, buffers...);
}

auto cpu() { return ffi::Ffi::Bind(); }
auto gpu() { return ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::ScratchAllocator>(); }

template <class Binding>
auto with_attributes(Binding&& binding) {
  return std::forward<Binding>(binding).template Attr<Numbers>("problem").template Attr<std::string_view>("precision");
}
template <class Binding>
auto three_to_one(Binding&& binding) {
  return with_attributes(std::forward<Binding>(binding)
                             .template Arg<ffi::AnyBuffer>()
                             .template Arg<ffi::AnyBuffer>()
                             .template Arg<ffi::AnyBuffer>()
                             .template Ret<ffi::AnyBuffer>());
}
template <class Binding>
auto two_to_one(Binding&& binding) {
  return with_attributes(std::forward<Binding>(binding)
                             .template Arg<ffi::AnyBuffer>()
                             .template Arg<ffi::AnyBuffer>()
                             .template Ret<ffi::AnyBuffer>());
}
template <class Binding>
auto two_to_two(Binding&& binding) {
  return with_attributes(std::forward<Binding>(binding)
                             .template Arg<ffi::AnyBuffer>()
                             .template Arg<ffi::AnyBuffer>()
                             .template Ret<ffi::AnyBuffer>()
                             .template Ret<ffi::AnyBuffer>());
}

// Kernels neither allocate nor wait, so that XLA may record their launches in a CUDA graph.
constexpr auto kGraphs = {ffi::Traits::kCmdBufferCompatible};
using Buffer = ffi::AnyBuffer;

}  // namespace
}  // namespace polyphase::python

#define POLYPHASE_HANDLER(name)                                                                                     \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* polyphase_conv_##name(XLA_FFI_CallFrame* frame); \
  XLA_FFI_Error* polyphase_conv_##name(XLA_FFI_CallFrame* frame)

namespace polyphase::python {
POLYPHASE_HANDLER(forward_cpu) {
  static auto handler = three_to_one(cpu()).To(&on_cpu<forward, Buffer, Buffer, Buffer, Out, Numbers, std::string_view>);
  return handler->Call(frame);
}
POLYPHASE_HANDLER(dgrad_cpu) {
  static auto handler = two_to_one(cpu()).To(&on_cpu<dgrad, Buffer, Buffer, Out, Numbers, std::string_view>);
  return handler->Call(frame);
}
POLYPHASE_HANDLER(wgrad_cpu) {
  static auto handler = two_to_two(cpu()).To(&on_cpu<wgrad, Buffer, Buffer, Out, Out, Numbers, std::string_view>);
  return handler->Call(frame);
}
POLYPHASE_HANDLER(forward_cuda) {
  static auto handler =
      three_to_one(gpu()).To(&on_cuda<forward, Buffer, Buffer, Buffer, Out, Numbers, std::string_view>, kGraphs);
  return handler->Call(frame);
}
POLYPHASE_HANDLER(dgrad_cuda) {
  static auto handler = two_to_one(gpu()).To(&on_cuda<dgrad, Buffer, Buffer, Out, Numbers, std::string_view>, kGraphs);
  return handler->Call(frame);
}
POLYPHASE_HANDLER(wgrad_cuda) {
  static auto handler = two_to_two(gpu()).To(&on_cuda<wgrad, Buffer, Buffer, Out, Out, Numbers, std::string_view>, kGraphs);
  return handler->Call(frame);
}

void bind_xla_handlers(nb::module_& module) {
  using Handler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame*);
  const std::array<std::pair<const char*, std::array<Handler, 2>>, 3> handlers{
      {{"polyphase_conv_forward", {polyphase_conv_forward_cpu, polyphase_conv_forward_cuda}},
       {"polyphase_conv_dgrad", {polyphase_conv_dgrad_cpu, polyphase_conv_dgrad_cuda}},
       {"polyphase_conv_wgrad", {polyphase_conv_wgrad_cpu, polyphase_conv_wgrad_cuda}}}};
  nb::dict found;  // (name, platform): capsule
  for (const auto& [name, both] : handlers) {
    found[nb::make_tuple(name, "cpu")] = nb::capsule(reinterpret_cast<void*>(both[0]));
    if (POLYPHASE_WITH_CUDA) found[nb::make_tuple(name, "CUDA")] = nb::capsule(reinterpret_cast<void*>(both[1]));
  }
  module.attr("_xla_handlers") = found;
}

}  // namespace polyphase::python
