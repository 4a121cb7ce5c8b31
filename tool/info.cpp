// polyphase info: describes this build and this machine.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.hpp"
#include "conv/algorithm.hpp"
#include "cpu/isa.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime/presence.hpp"
#include "device/backend.hpp"
#include "program/options.hpp"

namespace polyphase::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1024.0 * 1024.0;

void print_memory(const Device& device) {
  const MemoryStats stats = backend_of(device).allocator().stats();
  std::printf("  %-10s live %.1f MiB, cached %.1f MiB, peak %.1f MiB, %llu allocations\n", to_string(device).c_str(),
              static_cast<double>(stats.live_bytes) / kMiB, static_cast<double>(stats.cached_bytes) / kMiB,
              static_cast<double>(stats.peak_bytes) / kMiB, static_cast<unsigned long long>(stats.allocations));
}

void print_machine_memory() {
  const double page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::printf("  %-10s total %.0f MiB, free %.0f MiB\n", "machine",
              static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * page / kMiB,
              static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) * page / kMiB);
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const auto& [isa, name] : {std::pair{Isa::baseline, "baseline"}, {Isa::avx2, "avx2"}, {Isa::avx512, "avx512"}}) {
    if (cpu::isa_available(isa)) names.emplace_back(name);
  }
  return names;
}

int info_text() {
  const int gpus = device_count(DeviceType::cuda);
  std::printf("polyphase  %s\n", POLYPHASE_VERSION);
  std::printf("compiler   %s\n", POLYPHASE_COMPILER);
  std::printf("devices    cpu");
  for (int i = 0; i < gpus; ++i) std::printf(", %s", to_string(Device::cuda(i)).c_str());
  std::string isas;
  for (const std::string& name : available_isas()) isas += (isas.empty() ? "" : ", ") + name;
  std::printf("\nfeatures\n");
  std::printf("  %-10s in use %s; this machine and build have %s\n", "cpu", std::string(cpu_isa()).c_str(), isas.c_str());
  std::printf("  %-10s %d of OpenMP (OMP_NUM_THREADS, --threads)\n", "threads", num_threads());
  if (gpus == 0) std::printf("  %-10s not here: %s\n", "cuda", cuda::unavailable_reason().c_str());
  for (int i = 0; i < gpus; ++i)
    std::printf("  %-10s %s\n", to_string(Device::cuda(i)).c_str(), cuda::describe_device(i).c_str());
  std::printf("  %-10s f32, f64, f16, bf16, i64\n", "dtypes");
  std::printf("precision  %s (ieee, fp32, tf32)\n", std::string(name_of(current_precision())).c_str());
  std::printf("algorithm  %s\n", std::string(name_of(current_algorithm())).c_str());
  std::printf("memory\n");
  print_machine_memory();
  print_memory(Device::cpu());
  for (int i = 0; i < gpus; ++i) print_memory(Device::cuda(i));
  return 0;
}

Json memory_json(const Device& device) {
  const MemoryStats stats = backend_of(device).allocator().stats();
  return {{"live_bytes", stats.live_bytes},
          {"cached_bytes", stats.cached_bytes},
          {"peak_bytes", stats.peak_bytes},
          {"allocations", stats.allocations}};
}

int info_json() {
  const int gpus = device_count(DeviceType::cuda);
  Json devices = Json::array({{{"name", "cpu"}, {"memory", memory_json(Device::cpu())}}});
  for (int i = 0; i < gpus; ++i) {
    const Device gpu = Device::cuda(i);
    devices.push_back({{"name", to_string(gpu)}, {"description", cuda::describe_device(i)}, {"memory", memory_json(gpu)}});
  }
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const Json all{{"version", POLYPHASE_VERSION},
                 {"compiler", POLYPHASE_COMPILER},
                 {"devices", devices},
                 {"cuda_problem", gpus == 0 ? Json(cuda::unavailable_reason()) : Json()},
                 {"cpu_isa", cpu_isa()},
                 {"cpu_isas", available_isas()},
                 {"threads", num_threads()},
                 {"dtypes", {"f32", "f64", "f16", "bf16", "i64"}},
                 {"precision", name_of(current_precision())},
                 {"algorithm", name_of(current_algorithm())},
                 {"machine_bytes", ::sysconf(_SC_PHYS_PAGES) * page},
                 {"machine_free_bytes", ::sysconf(_SC_AVPHYS_PAGES) * page}};
  std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

}  // namespace

void add_info(program::Arguments& app, Action& action) {
  program::Arguments command = app.add_subcommand("info", "Prints version, devices, features, precision and memory");
  program::add_threads(command);
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "as JSON");
  command.callback([json, &action] { action = *json ? info_json : info_text; });
}

}  // namespace polyphase::tool
