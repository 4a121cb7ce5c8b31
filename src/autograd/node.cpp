#include "autograd/node.hpp"

#include <atomic>
#include <new>
#include <utility>

#include "autograd/no_grad.hpp"

namespace polyphase::autograd {

namespace {

std::uint64_t next_sequence() {
  static std::atomic<std::uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

// Moves the nodes that `node` points to into `taken`.
void take_edges(Node& node, std::vector<std::shared_ptr<Node>>& taken) noexcept {
  try {
    for (Edge& edge : node.edges)
      if (edge.node) taken.push_back(std::move(edge.node));
  } catch (const std::bad_alloc&) {
    // The rest is destroyed recursively.
  }
}

Edge edge_to(const Tensor& input) {
  Edge edge;
  if (!follows_gradients(input)) return edge;
  const std::shared_ptr<Meta>& meta = TensorAccess::meta(input);
  if (meta->node) {
    edge.node = meta->node;
    edge.node->consumers.fetch_add(1, std::memory_order_relaxed);
  } else {
    edge.leaf = meta;
  }
  edge.shape = input.shape();
  edge.dtype = input.dtype();
  edge.device = input.device();
  return edge;
}

}  // namespace

Node::~Node() {
  std::vector<std::shared_ptr<Node>> taken;  // a node may be there several times; the last one destroys it
  take_edges(*this, taken);
  while (!taken.empty()) {
    const std::shared_ptr<Node> node = std::move(taken.back());
    taken.pop_back();
    if (node.use_count() == 1) take_edges(*node, taken);
  }
}

Saved::Saved(const Tensor& tensor) {
  if (!tensor.defined()) return;
  tensor_ = tensor.detach();
  version_ = tensor_.storage().version();
}

const Tensor& Saved::get() const {
  // The engine prepends the operation's name.
  if (tensor_.defined())
    require<AutogradError>(tensor_.storage().version() == version_,
                           "a tensor saved for backward was written in place since (version ", tensor_.storage().version(),
                           ", expected ", version_, ")");
  return tensor_;
}

bool follows_gradients(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  const std::shared_ptr<Meta>& meta = TensorAccess::meta(tensor);
  return meta != nullptr && meta->requires_grad;
}

bool should_record(std::span<const Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& input : inputs)
    if (follows_gradients(input)) return true;
  return false;
}

Tensor record(const char* name, Tensor output, std::span<const Tensor> inputs, BackwardFunction backward,
              Derivative derivative) {
  if (!should_record(inputs)) return output;
  require<AutogradError>(inputs.size() <= 64, name, ": expected at most 64 inputs, got ", inputs.size());
  auto node = std::make_shared<Node>();
  node->name = name;
  node->sequence = next_sequence();
  node->edges.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    node->edges.push_back(edge_to(input));
    if (node->edges.back()) node->needs.set(static_cast<int>(node->edges.size()) - 1);
  }
  node->backward = std::move(backward);
  node->derivative = std::move(derivative);
  auto meta = std::make_shared<Meta>();
  meta->requires_grad = true;
  meta->node = std::move(node);
  TensorAccess::set_meta(output, std::move(meta));
  return output;
}

}  // namespace polyphase::autograd
