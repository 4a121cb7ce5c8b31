#include "distributed/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "autograd/no_grad.hpp"

namespace polyphase::distributed {
namespace {

constexpr Device kHost = Device::cpu();

// A hash of 8 bytes a step; the rest of a tensor is padded with zeros.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t hash) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ULL;
  const char* at = static_cast<const char*>(data);
  for (std::size_t i = 0; i < bytes; i += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, at + i, std::min(sizeof word, bytes - i));
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29U;
  }
  return hash;
}

std::uint64_t hash_of(std::span<const Tensor> tensors) {
  std::uint64_t hash = 0;
  for (const Tensor& tensor : tensors) {
    const Tensor host = tensor.detach().cpu().contiguous();
    hash = hash_bytes(host.raw(), static_cast<std::size_t>(host.numel()) * size_of(host.dtype()), hash);
  }
  return hash;
}

std::string first_difference(const std::string& mine, const std::string& first) {
  std::istringstream my_lines(mine), first_lines(first);
  std::string my_line, first_line;
  while (true) {
    const bool has_mine = static_cast<bool>(std::getline(my_lines, my_line));
    const bool has_first = static_cast<bool>(std::getline(first_lines, first_line));
    if (!has_mine) my_line = "nothing more";
    if (!has_first) first_line = "nothing more";
    if (my_line != first_line || (!has_mine && !has_first)) return concat("it has ", my_line, ", rank 0 has ", first_line);
  }
}

}  // namespace

std::string broadcast_text(Group& group, const std::string& text, std::string_view label) {
  Communicator& host = group.host_communicator();
  const Tensor size = Tensor::zeros({1}, {.dtype = DType::i64, .device = kHost});
  *size.data<std::int64_t>() = static_cast<std::int64_t>(text.size());
  host.broadcast(size, 0, label).wait();
  const std::int64_t bytes = *size.data<std::int64_t>();
  const Tensor letters = Tensor::zeros({bytes / 8 + 1}, {.dtype = DType::i64, .device = kHost});
  if (group.is_first()) std::memcpy(letters.raw(), text.data(), text.size());
  host.broadcast(letters, 0, label).wait();
  return {static_cast<const char*>(letters.raw()), static_cast<std::size_t>(bytes)};
}

void require_same_text(Group& group, const std::string& what, const std::string& text) {
  const std::string first = broadcast_text(group, text, what);
  if (text != first) group.fail(concat(what, " differ between ranks: ", first_difference(text, first)));
  group.barrier(what);
}

void require_same_bits(Group& group, std::span<const Tensor> parameters) {
  const NoGradGuard no_grad;
  const auto world = static_cast<std::int64_t>(group.world());
  const Tensor hashes = Tensor::zeros({world}, {.dtype = DType::i64, .device = kHost});
  hashes.data<std::int64_t>()[group.rank()] = static_cast<std::int64_t>(hash_of(parameters));
  group.host_communicator().all_gather(hashes, "hashes of the parameters").wait();
  const std::vector<std::int64_t> all = hashes.to_vector<std::int64_t>();
  // What most ranks have is right; rank 0's, if two values are equally frequent.
  const auto frequency = [&](std::int64_t hash) { return std::count(all.begin(), all.end(), hash); };
  std::int64_t right = all.front();
  for (const std::int64_t hash : all)
    if (frequency(hash) > frequency(right)) right = hash;
  const auto guilty = std::find_if(all.begin(), all.end(), [&](std::int64_t hash) { return hash != right; });
  if (guilty == all.end()) return;
  const int rank = static_cast<int>(guilty - all.begin());
  group.fail(concat("its parameters are not those of the other ranks, ", frequency(right), " of which agree: it has diverged"),
             group.name_of(rank), group.is_first() || group.rank() == rank);
}

void broadcast_tensors(Group& group, const NamedTensors& tensors) {
  const NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    Communicator& communicator = tensor.device().is_cpu() ? group.host_communicator() : group.communicator();
    const Tensor dense = tensor.detach().contiguous();
    communicator.broadcast(dense, 0, name).wait();
    if (dense.raw() != tensor.raw()) tensor.detach().copy_(dense);
  }
}

std::string describe(const NamedTensors& tensors) {
  std::ostringstream lines;
  for (const auto& [name, tensor] : tensors) lines << name << ' ' << tensor.shape() << ' ' << tensor.dtype() << '\n';
  return lines.str();
}

}  // namespace polyphase::distributed
