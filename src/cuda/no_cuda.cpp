// The functions of cuda.hpp in a build without CUDA.

#include "cuda/cuda.hpp"
#include "cuda/pinned.hpp"
#include "cuda/runtime/dry_run.hpp"
#include "cuda/runtime/presence.hpp"
#include "device/backend.hpp"
#include "tensor/error.hpp"

namespace polyphase {
namespace {

[[noreturn]] void refuse(int device) {
  throw DeviceError(concat(Device::cuda(device), ": this build of polyphase has no CUDA support; devices: cpu"));
}

}  // namespace

Backend& cuda_backend(int index) { refuse(index); }

int cuda_device_count() { return 0; }

namespace cuda {

int device_count() noexcept { return 0; }
std::string describe_device(int device) { refuse(device); }
std::array<std::int64_t, 2> device_uuid(int device) { refuse(device); }
void make_current(int device) { refuse(device); }
std::string unavailable_reason() { return "this build of polyphase has no CUDA support"; }

Stream::Stream(int device, bool) : device_(device) { refuse(device); }
Stream::~Stream() = default;
void Stream::synchronize() const { refuse(device_); }
void Stream::wait_for(const Stream&) const { refuse(device_); }
void Stream::wait_for_current() const { refuse(device_); }
void Stream::let_current_wait() const { refuse(device_); }

StreamGuard::StreamGuard(int device, CUstream_st* stream) : device_(device), previous_(stream) { refuse(device_); }
StreamGuard::~StreamGuard() = default;

CurrentDevice::CurrentDevice(int device) { refuse(device); }
CurrentDevice::~CurrentDevice() = default;

void retire_stream(int device, CUstream_st*) { refuse(device); }
void synchronize(int device) { refuse(device); }
std::uint64_t host_waits() noexcept { return 0; }
MemoryStats memory_stats(int device) { refuse(device); }
std::string memory_snapshot(int device) { refuse(device); }
void set_memory_limit(int device, std::size_t) { refuse(device); }
std::uint64_t computed_again(int device) { refuse(device); }
std::size_t measure_workspace(int device, const std::function<void(CUstream_st*)>&) { refuse(device); }

struct Graph::State {};
Graph::Graph(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;
void Graph::replay() { refuse(0); }
std::uint64_t Graph::replays() const noexcept { return 0; }
std::size_t Graph::steps() const noexcept { return 0; }
Graph capture(const std::function<void()>&, int device) { refuse(device); }
bool capturing() noexcept { return false; }
void on_replay(std::function<void()>) {}

struct PinnedBuffer::State {};
PinnedBuffer::PinnedBuffer(std::size_t, int device) { refuse(device); }
PinnedBuffer::~PinnedBuffer() = default;
PinnedBuffer::PinnedBuffer(PinnedBuffer&&) noexcept = default;
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&&) noexcept = default;
void* PinnedBuffer::data() const { return nullptr; }
std::size_t PinnedBuffer::bytes() const noexcept { return 0; }
int PinnedBuffer::device() const noexcept { return 0; }
Tensor Upload::get() const { refuse(0); }
Upload upload_async(const PinnedBuffer&, const Shape&, DType) { refuse(0); }

}  // namespace cuda
}  // namespace polyphase
