#include "distributed/checkpoint_of_group.hpp"

#include <vector>

#include "distributed/agreement.hpp"

namespace polyphase::distributed {
namespace {

constexpr char kMark = '@';  // NAME@2: the generator of rank 2

// Rank r's generators are entries r*n to (r + 1)*n.
std::vector<GeneratorState> gather_generators(Group& group, const std::map<std::string, GeneratorState>& own) {
  const auto world = static_cast<std::int64_t>(group.world()), count = static_cast<std::int64_t>(own.size());
  const Tensor words = Tensor::zeros({world, 2 * count}, {.dtype = DType::i64, .device = Device::cpu()});
  auto* at = words.data<std::int64_t>() + group.rank() * 2 * count;
  for (const auto& [name, state] : own) {
    *at++ = static_cast<std::int64_t>(state.seed);
    *at++ = static_cast<std::int64_t>(state.offset);
  }
  group.host_communicator().all_gather(words, "generators").wait();
  std::vector<GeneratorState> all;
  const std::vector<std::int64_t> values = words.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < values.size(); i += 2)
    all.push_back({static_cast<std::uint64_t>(values[i]), static_cast<std::uint64_t>(values[i + 1])});
  return all;
}

Checkpoint with_all_generators(Group& group, const Checkpoint& own) {
  const std::vector<GeneratorState> all = gather_generators(group, own.generators);
  Checkpoint whole = own;
  whole.generators.clear();
  std::size_t i = 0;
  for (int rank = 0; rank < group.world(); ++rank)
    for (const auto& [name, state] : own.generators) whole.generators[concat(name, kMark, rank)] = all[i++];
  return whole;
}

// The generators of `rank` under their own names.
std::map<std::string, GeneratorState> generators_of(const std::map<std::string, GeneratorState>& all, int rank) {
  std::map<std::string, GeneratorState> own;
  for (const auto& [marked, state] : all) {
    const std::size_t mark = marked.rfind(kMark);
    const std::string name = marked.substr(0, mark);
    const bool is_first = mark == std::string::npos || marked.substr(mark + 1) == "0";
    if (mark != std::string::npos && marked.substr(mark + 1) == std::to_string(rank)) {
      own[name] = state;
    } else if (is_first) {  // unless this rank's follows or has come
      constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15ULL;
      own.try_emplace(name, GeneratorState{state.seed + kApart * static_cast<std::uint64_t>(rank), state.offset});
    }
  }
  return own;
}

std::string contents_of(const Checkpoint& checkpoint) {
  std::string text = concat("step ", checkpoint.step, "\n", describe(checkpoint.model));
  for (const auto& [owner, state] : checkpoint.states) text += concat(owner, "\n", describe(state.tensors));
  return text;
}

}  // namespace

void save_checkpoint(Group& group, const std::string& path, const Checkpoint& checkpoint) {
  if (group.world() == 1) return polyphase::save_checkpoint(path, checkpoint);
  const Checkpoint whole = with_all_generators(group, checkpoint);
  std::string problem;
  if (group.is_first()) {
    try {
      polyphase::save_checkpoint(path, whole);
    } catch (const FormatError& error) {
      problem = error.what();
    }
  }
  problem = broadcast_text(group, problem, "a checkpoint's result");
  if (!problem.empty()) throw FormatError(problem);
}

Checkpoint load_checkpoint(Group& group, const std::string& path) {
  Checkpoint checkpoint = polyphase::load_checkpoint(path);
  if (group.world() > 1) require_same_text(group, "the checkpoints", contents_of(checkpoint));
  checkpoint.generators = generators_of(checkpoint.generators, group.rank());
  return checkpoint;
}

}  // namespace polyphase::distributed
