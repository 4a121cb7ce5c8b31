// Times a warm allocation: a pair of allocate and free of one size, and a step of many sizes, in ns a pair.
//   allocator [--repeat R] [--json FILE]
// "host": the pool alone, over simulated memory; runs on any machine. With a GPU also the device's allocator compared with
// cudaMalloc and cudaMallocAsync, and the peak of its memory over a training run compared with the peak of live memory. If a
// pool hands out overlapping blocks, or maps memory again in a warm run, the exit status is 1. bench/peers_torch_allocator.py
// times PyTorch's allocator.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/memory/block_pool.hpp"
#include "program/options.hpp"
#include "program/program.hpp"
#ifdef POLYPHASE_BENCH_CUDA
#include <polyphase/polyphase.hpp>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#endif

namespace {

namespace cuda = polyphase::cuda;
namespace program = polyphase::program;

struct CountedMemory final : cuda::MemorySource {
  cuda::Address reserve(std::size_t bytes) override { return std::exchange(next, next + bytes); }
  void release(cuda::Address, std::size_t) noexcept override {}
  std::size_t available() override { return std::numeric_limits<std::size_t>::max(); }
  bool map(cuda::Address, std::size_t) override { return true; }
  void unmap(cuda::Address, std::size_t) noexcept override {}
  bool move(cuda::Address, cuda::Address, std::size_t) override { return true; }
  std::size_t granularity() const override { return std::size_t{2} << 20U; }
  cuda::EventId record(cuda::StreamId) override { return 1; }
  bool done(cuda::EventId) override { return true; }
  void wait(cuda::EventId) override {}
  void order(cuda::StreamId, cuda::StreamId) override {}
  void synchronize(cuda::StreamId) override {}
  cuda::Address next = std::size_t{1} << 40U;
};

struct Record {
  std::string shape, algorithm;
  double ns = 0;
  std::size_t live_peak = 0, held_peak = 0;  // of a training run, which has no time
};

/// The allocations of a small network's step: they live together and are freed in reverse order.
const std::vector<std::size_t>& step_sizes() {
  static const std::vector<std::size_t> sizes = [] {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < 64; ++i) all.push_back(std::size_t{1000} * (1 + (i * 37) % 64) * (i % 4 == 0 ? 64 : 1));
    return all;
  }();
  return sizes;
}

double median_ns(int repeat, int pairs, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = -1; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count() / pairs);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<std::size_t>(repeat / 2)];
}

template <class A, class F>
void time_all(std::vector<Record>& records, const std::string& algorithm, int repeat, int pairs, A allocate, F free) {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{4096}, std::size_t{1} << 20U, std::size_t{64} << 20U}) {
    const double ns = median_ns(repeat, pairs, [&] {
      for (int i = 0; i < pairs; ++i) free(allocate(bytes), bytes);
    });
    records.push_back({"pair_" + std::to_string(bytes), algorithm, ns});
  }
  const std::vector<std::size_t>& sizes = step_sizes();
  std::vector<void*> held(sizes.size());
  const int rounds = std::max(1, pairs / static_cast<int>(sizes.size()));
  const double ns = median_ns(repeat, rounds * static_cast<int>(sizes.size()), [&] {
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < sizes.size(); ++i) held[i] = allocate(sizes[i]);
      for (std::size_t i = sizes.size(); i-- > 0;) free(held[i], sizes[i]);
    }
  });
  records.push_back({"step_64", algorithm, ns});
}

bool time_host(std::vector<Record>& records, int repeat) {
  CountedMemory memory;
  cuda::BlockPool pool(memory);
  time_all(
      records, "host", repeat, 100000, [&](std::size_t bytes) { return pool.allocate(bytes, 1); },
      [&](void* pointer, std::size_t) { pool.deallocate(pointer, 1); });
  // Repeat: a warm pool must not map memory, and blocks that live together must not overlap.
  const std::uint64_t growths = pool.pool_stats().growths;
  std::vector<std::pair<char*, std::size_t>> blocks;
  for (const std::size_t bytes : step_sizes()) blocks.emplace_back(static_cast<char*>(pool.allocate(bytes, 1)), bytes);
  std::sort(blocks.begin(), blocks.end());
  bool right = pool.pool_stats().growths == growths;
  for (std::size_t i = 1; i < blocks.size(); ++i)
    right = right && blocks[i - 1].first + blocks[i - 1].second <= blocks[i].first;
  return right;
}

#ifdef POLYPHASE_BENCH_CUDA
/// The peak of the tensors' memory and of the memory held from the device, over the steps of a small vocoder-like network. Must
/// run first in the process: later the peaks include other work.
void training_peak(std::vector<Record>& records) {
  namespace pp = polyphase;
  pp::Sequential net(pp::Conv1d({.in_channels = 1, .out_channels = 64, .kernel_size = 7, .padding = 3}), pp::LeakyReLU(0.1),
                     pp::ConvTranspose1d({.in_channels = 64, .out_channels = 64, .kernel_size = 8, .stride = 4, .padding = 2}),
                     pp::LeakyReLU(0.1),
                     pp::ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 8, .stride = 4, .padding = 2}),
                     pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 32, .out_channels = 1, .kernel_size = 7, .padding = 3}),
                     pp::Tanh());
  net.to(pp::Device::cuda());
  pp::Adam optimizer(net.parameters(), {.learning_rate = 1e-3});
  for (int step = 0; step < 20; ++step) {
    const pp::Tensor x = pp::Tensor::randn({32, 1, 512}, {.device = pp::Device::cuda()});
    const pp::Tensor target = pp::Tensor::randn({32, 1, 8192}, {.device = pp::Device::cuda()});
    const pp::Tensor loss = pp::mse_loss(net(x), target);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  const cuda::DeviceAllocator& own = cuda::allocator(0);
  records.push_back({"training_peak", "polyphase", 0, own.stats().peak_bytes, own.pool_stats().peak_mapped_bytes});
}

void time_device(std::vector<Record>& records, int repeat) {
  if (cuda::device_count() == 0) {
    std::printf("no GPU: %s\n", cuda::unavailable_reason().c_str());
    return;
  }
  training_peak(records);
  cuda::DeviceAllocator& own = cuda::allocator(0);
  time_all(
      records, "polyphase", repeat, 20000, [&](std::size_t bytes) { return own.allocate(bytes); },
      [&](void* pointer, std::size_t bytes) { own.deallocate(pointer, bytes); });
  const cudaStream_t stream = cuda::current_stream(0);
  time_all(
      records, "cudaMallocAsync", repeat, 2000,
      [&](std::size_t bytes) {
        void* pointer = nullptr;
        CHECK_CUDA(cudaMallocAsync(&pointer, bytes, stream));
        return pointer;
      },
      [&](void* pointer, std::size_t) { CHECK_CUDA(cudaFreeAsync(pointer, stream)); });
  time_all(
      records, "cudaMalloc", repeat, 100,
      [&](std::size_t bytes) {
        void* pointer = nullptr;
        CHECK_CUDA(cudaMalloc(&pointer, bytes));
        return pointer;
      },
      [&](void* pointer, std::size_t) { CHECK_CUDA(cudaFree(pointer)); });
}
#else
void time_device(std::vector<Record>&, int) { std::printf("no GPU: %s\n", cuda::unavailable_reason().c_str()); }
#endif

int time_and_tell(int repeat, const std::string& json_path) {
  std::vector<Record> records;
  // A second thread, since every program with a GPU has one: locks are cheaper in a process with one thread.
  std::jthread idle([](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const bool right = time_host(records, repeat);
  time_device(records, repeat);
  nlohmann::json json = nlohmann::json::array();
  for (const Record& record : records) {
    nlohmann::json entry = {{"suite", "allocator"}, {"shape", record.shape}, {"algorithm", record.algorithm}};
    if (record.held_peak > 0) {
      std::printf("%-16s | %-16s | live at most %zu bytes, held %zu\n", record.shape.c_str(), record.algorithm.c_str(),
                  record.live_peak, record.held_peak);
      entry["live_peak_bytes"] = record.live_peak;
      entry["held_peak_bytes"] = record.held_peak;
    } else {
      std::printf("%-16s | %-16s | %10.1f ns a pair\n", record.shape.c_str(), record.algorithm.c_str(), record.ns);
      entry["us_burst"] = record.ns / 1000;
    }
    json.push_back(entry);
  }
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << nlohmann::json{{"suite", "allocator"}, {"records", json}}.dump(1) << '\n';
    file.close();
    if (!file) throw polyphase::Error("cannot write '" + json_path + "'");
  }
  if (!right) std::fprintf(stderr, "allocator: a warm pool asked for memory, or blocks overlap\n");
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string json_path;
  int repeat = 15;
  const auto describe = [&](program::Arguments& app, program::Action& action) {
    app.add_option("--repeat", repeat, "timed runs").above_zero();
    app.add_option("--json", json_path, "file for the records");
    action = [&] { return time_and_tell(repeat, json_path); };
  };
  return program::run_main(argc, argv, "allocator", "Times warm allocations.", describe);
}
