#include "cuda/runtime/graph.hpp"

#include <utility>
#include <vector>

#include "cuda/memory/allocator.hpp"
#include "cuda/memory/block_pool.hpp"
#include "cuda/runtime/recording_lock.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/operation.hpp"
#include "tensor/repeated_numbers.hpp"
#include "tensor/storage.hpp"

namespace polyphase::cuda {

struct Graph::State final : WriteObserver {
  explicit State(int on) : device(on), stream(on), start(default_generator().state()), values(sizeof(ReplayState), on) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() override;

  int device;
  Stream stream;  // the work was recorded on it; nothing runs there
  std::uint64_t id = new_graph_id();
  GeneratorState start;  // the default generator's when the capture began
  std::uint64_t draws = 0;
  Buffer values;  // (1) ReplayState
  bool values_used = false;
  std::vector<std::function<void()>> updates;
  std::vector<std::function<void(cudaStream_t)>> preparations;
  std::vector<std::shared_ptr<void>> kept;  // until the recording ends
  cudaGraphExec_t executable = nullptr;
  std::uint64_t replays = 0;
  std::size_t steps = 0;
  Event last;                        // recorded after the last replay
  std::vector<WeakStorage> targets;  // written by each replay

  void written(const Storage& storage) noexcept override;

  void record(const std::function<void()>& work);
};

Graph::State::~State() {
  if (replays > 0) (void)cudaEventSynchronize(last.get());
  if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
  for_each_allocator([this](DeviceAllocator& each) { each.release_graph(id); });
}

void Graph::State::written(const Storage& storage) noexcept {
  if (targets.empty() || !targets.back().is_of(storage)) targets.emplace_back(storage);
}

namespace {

constinit thread_local Graph::State* current = nullptr;

/// A recording: while it exists, the thread's work on the device goes into the graph.
class Recording {
 public:
  Recording(Graph::State& state, int device, const Stream& stream, std::uint64_t id)
      : guard_(stream), device_(device), stream_(stream.get()), id_(id) {
    // Watches only this thread's calls: other threads may continue, but must not wait for the whole device.
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    allocator(device_).begin_capture(id_);
    current = &state;
    WriteObserver::exchange(&state);
  }
  ~Recording() {
    cudaGraph_t graph = nullptr;
    if (!ended_ && finish(&graph) == cudaSuccess && graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cudaError_t finish(cudaGraph_t* graph) {
    ended_ = true;
    current->kept.clear();
    current = nullptr;
    WriteObserver::exchange(nullptr);
    const cudaError_t status = cudaStreamEndCapture(stream_, graph);
    // On every device: memory freed there during the capture waits for its end.
    for_each_allocator([this](DeviceAllocator& each) { each.end_capture(id_); });
    return status;
  }

 private:
  std::shared_lock<std::shared_mutex> lock_ = recording_lock();
  StreamGuard guard_;
  int device_;
  cudaStream_t stream_;
  std::uint64_t id_;
  bool ended_ = false;
};

/// Resets the default generator: the replays draw the numbers that the recording drew.
class GeneratorRewind {
 public:
  explicit GeneratorRewind(GeneratorState state) : state_(state) {}
  ~GeneratorRewind() { default_generator().set_state(state_); }
  GeneratorRewind(const GeneratorRewind&) = delete;
  GeneratorRewind& operator=(const GeneratorRewind&) = delete;

 private:
  GeneratorState state_;
};

/// Memory cannot be released and requested again while recording, so there must be enough before.
void make_room(int device) {
  std::size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  if (free < allocator(device).pool_stats().mapped_bytes) allocator(device).trim();
}

}  // namespace

void Graph::State::record(const std::function<void()>& work) {
  const DeviceScope scope(device);
  make_room(device);
  const GeneratorRewind rewind(start);
  cudaGraph_t graph = nullptr;
  {
    Recording recording(*this, device, stream, id);
    work();
    const cudaError_t status = recording.finish(&graph);
    if (status == cudaErrorStreamCaptureInvalidated || status == cudaErrorStreamCaptureUnmatched) {
      (void)cudaGetLastError();
      throw DeviceError(
          concat("cuda::capture: the work did something that cannot be recorded (", cudaGetErrorString(status), ")"));
    }
    CHECK_CUDA(status);
  }
  const GeneratorState end = default_generator().state();
  draws = end.offset - start.offset;
  cudaError_t status = cudaGraphGetNodes(graph, nullptr, &steps);
  // With the priorities of the streams that the work was recorded on: collectives run between the kernels of a step.
  if (status == cudaSuccess) status = cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  (void)cudaGraphDestroy(graph);
  CHECK_CUDA(status);
  require<DeviceError>(end.seed == start.seed, "cuda::capture: expected work that leaves the default generator's seed ",
                       start.seed, ", got ", end.seed);
}

Graph::Graph(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

std::uint64_t Graph::replays() const noexcept { return state_ ? state_->replays : 0; }
std::size_t Graph::steps() const noexcept { return state_ ? state_->steps : 0; }

void Graph::replay() {
  refuse_capture("Graph::replay");
  require<DeviceError>(state_ != nullptr, "Graph::replay: expected a captured graph, got one that was moved from");
  State& state = *state_;
  const DeviceScope scope(state.device);
  const cudaStream_t stream = current_stream(state.device);
  if (state.replays > 0) {
    for (const auto& update : state.updates) update();
    state.last.wait_on(stream);  // the last replay may have used another stream
  }
  for (const auto& prepare : state.preparations) prepare(stream);
  if (state.values_used) {
    const GeneratorState now = state.draws > 0 ? default_generator().take(state.draws) : state.start;
    set_replay_state(state.values.as<ReplayState>(), {now.seed, now.offset - state.start.offset}, stream);
  }
  CHECK_CUDA(cudaGraphLaunch(state.executable, stream));
  ++state.replays;
  for (const WeakStorage& target : state.targets) target.bump_version();
  state.last.record(stream);
}

Graph capture(const std::function<void()>& work, int device) {
  refuse_capture("cuda::capture");
  (void)properties(device);
  const DeviceScope scope(device);
  auto state = std::make_unique<Graph::State>(device);
  state->record(work);
  return Graph(std::move(state));
}

bool capturing() noexcept { return current != nullptr; }

void on_replay(std::function<void()> update) {
  if (current != nullptr) current->updates.push_back(std::move(update));
}

void before_replay(std::function<void(cudaStream_t)> work) {
  if (current != nullptr) current->preparations.push_back(std::move(work));
}

void keep_while_capturing(std::shared_ptr<void> owned) {
  if (current != nullptr) current->kept.push_back(std::move(owned));
}

const ReplayState* replay_state(int device) {
  if (current == nullptr || current->device != device) return nullptr;
  current->values_used = true;
  return current->values.as<ReplayState>();
}

const ReplayState* replay_state(int device, const GeneratorState& state) {
  if (current == nullptr || RepeatedNumbersGuard::is_active()) return nullptr;
  const GeneratorState now = default_generator().state();
  const bool known =
      state.seed == current->start.seed && state.offset - current->start.offset <= now.offset - current->start.offset;
  require<DeviceError>(known, "cuda::capture: expected random numbers of the thread's default generator (seed ",
                       current->start.seed, "), got those of another (seed ", state.seed, ", offset ", state.offset, ")");
  return replay_state(device);
}

void refuse_capture(const char* operation) {
  if (current == nullptr) return;
  const char* const caller = OperationScope::name();
  throw DeviceError(concat(
      caller != nullptr ? concat(caller, ": ", operation) : concat(operation, ":"),
      " cannot be recorded in a CUDA graph, as it waits for the device or for another graph; call it outside cuda::capture"));
}

void refuse_other_device(int device) {
  if (current == nullptr || current->device == device) return;
  throw DeviceError(concat("cuda::capture: expected work on cuda:", current->device, " alone, got some on cuda:", device));
}

}  // namespace polyphase::cuda
