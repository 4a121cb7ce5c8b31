#include "optim/state_reader.hpp"

#include <cmath>

namespace polyphase {

const double* StateReader::find_number(const std::string& name) const {
  for (const auto& [key, value] : state_.numbers) {
    if (key == name) return &value;
  }
  return nullptr;
}

double StateReader::number(const std::string& name) const {
  const double* found = find_number(name);
  require<Error>(found != nullptr, owner_, "::load_state: the number \"", name, "\" is missing");
  return *found;
}

std::int64_t StateReader::count(const std::string& name) const {
  const double value = number(name);
  // Above 2^53 a double cannot represent every integer.
  require<Error>(value >= 0 && value <= 0x1p53 && std::floor(value) == value, owner_, "::load_state: expected \"", name,
                 "\" to be a whole number >= 0, got ", value);
  return static_cast<std::int64_t>(value);
}

Tensor StateReader::tensor(const std::string& name, const Tensor& like) const {
  for (const auto& [key, value] : state_.tensors) {
    if (key != name) continue;
    require<Error>(value.defined() && value.shape() == like.shape(), owner_, "::load_state: expected \"", name, "\" of shape ",
                   like.shape(), ", got ", value.defined() ? to_string(value.shape()) : "an undefined tensor");
    Tensor copy = Tensor::empty_like(like);
    copy.copy_(value.detach());
    return copy;
  }
  throw Error(concat(owner_, "::load_state: the tensor \"", name, "\" is missing"));
}

void StateReader::expect_size(std::size_t tensors, std::size_t numbers) const {
  require<Error>(state_.tensors.size() == tensors && state_.numbers.size() == numbers, owner_, "::load_state: expected ",
                 tensors, " tensors and ", numbers, " numbers, got ", state_.tensors.size(), " and ", state_.numbers.size());
}

}  // namespace polyphase
